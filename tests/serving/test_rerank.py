"""/v1/rerank, /v1/score and /v1/embeddings over tiny encoders."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from octavo import LLM, Pooling
from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"
QUERY = "the cat"
DOCUMENTS = ["mice", "of men and mice", "b" * 20, "a cat", ""]
RERANK = ("/v1/rerank", "/rerank", "/v2/rerank")
SCORE = ("/v1/score", "/score")


@pytest.fixture(scope="module")
def ranker() -> Iterator[LiveServer]:
    options = ServerOptions(served_model_names=(MODEL,))
    with live_server(FIXTURES / "bert-rerank", "cpu", server=options) as server:
        yield server


@pytest.fixture(scope="module")
def embedder() -> Iterator[LiveServer]:
    options = ServerOptions(served_model_names=(MODEL,))
    with live_server(FIXTURES / "bert", "cpu", server=options) as server:
        yield server


@pytest.fixture(scope="module")
def own() -> list[float]:
    with LLM(str(FIXTURES / "bert-rerank")) as llm:
        return [output.score for output in llm.score(QUERY, DOCUMENTS, use_tqdm=False)]


def rerank(live: LiveServer, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
    given = {"model": MODEL, "query": QUERY, "documents": DOCUMENTS, **body}
    return live.http.post(path, json=given)


def pair(live: LiveServer, path: str = "/v1/score", **body: Any) -> httpx.Response:
    return live.http.post(path, json={"model": MODEL, "text_1": "a", "text_2": "b", **body})


def scores(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    return [one["score"] for one in answer.json()["data"]]


def test_batches_run_over_both(tmp_path: Path, own: list[float]) -> None:
    options = ServerOptions(served_model_names=(MODEL,), data_dir=str(tmp_path))
    pairs = {"model": MODEL, "text_1": QUERY, "text_2": DOCUMENTS}
    ranks = {"model": MODEL, "query": QUERY, "documents": DOCUMENTS}
    with (
        live_server(FIXTURES / "bert-rerank", "cpu", server=options) as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as client,
    ):
        answers = {}
        for url, body in (("/v1/score", pairs), ("/v1/rerank", ranks)):
            line = json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body})
            file = client.files.create(file=("in.jsonl", line.encode()), purpose="batch")
            batch = client.batches.create(
                input_file_id=file.id,
                endpoint=url,  # type: ignore[arg-type]
                completion_window="24h",
            )
            while (batch := client.batches.retrieve(batch.id)).status != "completed":
                assert batch.status in ("validating", "in_progress", "finalizing"), batch
                time.sleep(0.02)
            content = client.files.content(batch.output_file_id or "").read()
            answers[url] = json.loads(content)["response"]["body"]
    assert [one["score"] for one in answers["/v1/score"]["data"]] == own
    assert answers["/v1/rerank"]["results"][0]["relevance_score"] == max(own)


@pytest.mark.parametrize("path", RERANK)
def test_rerank(ranker: LiveServer, own: list[float], path: str) -> None:
    answer = rerank(ranker, path).json()
    order = sorted(range(len(own)), key=lambda index: -own[index])
    assert [one["index"] for one in answer["results"]] == order
    assert [one["relevance_score"] for one in answer["results"]] == [own[i] for i in order]
    assert [one["document"]["text"] for one in answer["results"]] == [DOCUMENTS[i] for i in order]
    assert answer["model"] == MODEL
    assert answer["usage"]["total_tokens"] > 5 * len(DOCUMENTS)


def test_rerank_options(ranker: LiveServer, own: list[float]) -> None:
    best = rerank(ranker, top_n=2, return_documents=False).json()["results"]
    assert len(best) == 2
    assert all(set(one) == {"index", "relevance_score"} for one in best)
    assert len(rerank(ranker, top_n=0).json()["results"]) == len(DOCUMENTS)
    assert len(rerank(ranker, top_n=99).json()["results"]) == len(DOCUMENTS)
    objects = [{"text": text} for text in DOCUMENTS]
    assert rerank(ranker, documents=objects).json()["results"][0]["relevance_score"] == max(own)
    one, cut = rerank(ranker, documents=["m", "mice"], max_tokens_per_doc=1).json()["results"]
    assert one["relevance_score"] == cut["relevance_score"]
    plain = rerank(ranker, use_activation=False).json()["results"]
    assert 1 / (1 + np.exp(-plain[0]["relevance_score"])) == pytest.approx(max(own))


@pytest.mark.parametrize("path", SCORE)
def test_score(ranker: LiveServer, own: list[float], path: str) -> None:
    assert scores(pair(ranker, path, text_1=QUERY, text_2=DOCUMENTS)) == own
    assert scores(pair(ranker, path, text_1=[QUERY], text_2=DOCUMENTS[0])) == own[:1]
    by_pairs = scores(pair(ranker, path, text_1=[QUERY, "x"], text_2=DOCUMENTS[:2]))
    assert by_pairs[0] == own[0]
    assert by_pairs[1] != own[1]


def test_many_pairs(ranker: LiveServer, own: list[float]) -> None:
    assert scores(pair(ranker, text_1=QUERY, text_2=DOCUMENTS * 100)) == own * 100
    assert ranker.wait_idle()["octavo:num_requests_running"] == 0


def test_long_pairs_are_refused_or_cut(ranker: LiveServer) -> None:
    answer = pair(ranker, text_2="b " * 200)
    assert answer.status_code == 400
    assert "64" in answer.json()["error"]["message"]
    assert len(scores(pair(ranker, text_2="b " * 200, truncate_prompt_tokens=-1))) == 1
    short, same = (pair(ranker, text_2=t, truncate_prompt_tokens=6) for t in ("b c d", "b c"))
    assert scores(short) == scores(same)


def test_scores_by_angle(embedder: LiveServer) -> None:
    with LLM(str(FIXTURES / "bert")) as llm:
        own = [output.score for output in llm.score(QUERY, DOCUMENTS, use_tqdm=False)]
    assert scores(pair(embedder, text_1=QUERY, text_2=DOCUMENTS)) == own
    ranked = rerank(embedder).json()["results"]
    assert ranked[0]["relevance_score"] == max(own)
    answer = rerank(embedder, max_tokens_per_doc=3)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_tokens_per_doc"


def test_embeddings_of_an_encoder(embedder: LiveServer) -> None:
    with LLM(str(FIXTURES / "bert")) as llm:
        own = [o.embedding.tobytes() for o in llm.embed(DOCUMENTS, use_tqdm=False)]
        asked = llm.embed("mice", prompt_name="query", use_tqdm=False)[0].embedding
        unit = llm.embed("mice", Pooling("cls", 8, normalize=True), use_tqdm=False)[0].embedding
    with openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="x", max_retries=0) as client:
        answer = client.embeddings.create(model=MODEL, input=DOCUMENTS)
    assert [np.array(one.embedding, np.float32).tobytes() for one in answer.data] == own
    body = {"model": MODEL, "input": "mice"}
    named = embedder.http.post("/v1/embeddings", json={**body, "prompt_name": "query"}).json()
    assert np.array(named["data"][0]["embedding"], np.float32).tobytes() == asked.tobytes()
    options = {"pooling": "cls", "dimensions": 8, "normalize": True}
    short = embedder.http.post("/v1/embeddings", json={**body, **options}).json()
    assert np.array(short["data"][0]["embedding"], np.float32).tobytes() == unit.tobytes()
    ollama = embedder.http.post("/api/embed", json=body).json()
    assert np.array(ollama["embeddings"][0], np.float32).tobytes() == own[0]


def test_a_cut_text_keeps_its_end(embedder: LiveServer) -> None:
    def vector(text: str, **options: Any) -> list[float]:
        body = {"model": MODEL, "input": text, **options}
        answer = embedder.http.post("/v1/embeddings", json=body)
        assert answer.status_code == 200, answer.text
        found: list[float] = answer.json()["data"][0]["embedding"]
        return found

    assert vector("a b c d", truncate_prompt_tokens=4) == vector("a b")
    assert len(vector("a " * 500, truncate_prompt_tokens=-1)) == 32


GENERATION = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}]},
    "/api/generate": {"prompt": "hi"},
}


@pytest.mark.parametrize("path", GENERATION)
def test_generation_is_refused_by_what_the_server_does(
    ranker: LiveServer, embedder: LiveServer, path: str
) -> None:
    for live, does in ((ranker, "/v1/rerank"), (embedder, "/v1/embeddings")):
        answer = live.http.post(path, json={"model": MODEL, **GENERATION[path]})
        assert answer.status_code == 400, answer.text
        assert does in answer.text


def test_a_cross_encoder_does_not_embed(ranker: LiveServer) -> None:
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/api/embed", {"input": "a"})):
        answer = ranker.http.post(path, json={"model": MODEL, **body})
        assert answer.status_code == 400
        assert "/v1/rerank" in answer.text


def test_the_rest_of_the_server(ranker: LiveServer, embedder: LiveServer) -> None:
    assert ranker.http.get("/v1/models").json()["data"][0]["id"] == MODEL
    assert ranker.http.get("/health").status_code == 200
    assert "octavo:prompt_tokens_total" in ranker.http.get("/metrics").text
    shown = embedder.http.post("/api/show", json={"model": MODEL}).json()
    assert shown["capabilities"] == ["embedding"]
    tokens = ranker.http.post("/tokenize", json={"model": MODEL, "prompt": "a b"}).json()
    assert tokens["tokens"] == [2, 5, 6, 3]


BAD: list[tuple[str, str, dict[str, Any]]] = [
    *(("/v1/rerank", "query", {"query": q}) for q in (None, 5, ["a"], {})),
    *(("/v1/rerank", "documents", {"documents": d}) for d in (None, "a", [], [5], [None], [[]])),
    ("/v1/rerank", "documents", {"documents": [{"title": "a"}]}),
    ("/v1/rerank", "documents", {"documents": [{"text": 5}]}),
    ("/v1/rerank", "documents", {"documents": ["a"] * 2049}),
    *(("/v1/rerank", "top_n", {"top_n": n}) for n in (-1, 1.5, "2", True)),
    *(("/v1/rerank", "return_documents", {"return_documents": r}) for r in (1, "yes")),
    *(("/v1/rerank", "max_tokens_per_doc", {"max_tokens_per_doc": n}) for n in (0, -1, "5")),
    ("/v1/rerank", "truncate_prompt_tokens", {"truncate_prompt_tokens": 0}),
    ("/v1/rerank", "truncate_prompt_tokens", {"truncate_prompt_tokens": -2}),
    ("/v1/rerank", "use_activation", {"use_activation": "no"}),
    ("/v1/rerank", "priority", {"priority": 2**40}),
    ("/v1/rerank", "model", {"model": 5}),
    ("/v1/rerank", "model", {"model": "other"}),
    ("/v1/rerank", "surprise", {"surprise": 1}),
    ("/v1/rerank", "documents", {"query": "a " * 500}),
    *(("/v1/score", "text_1", {"text_1": t}) for t in (None, 5, [5], {}, [], ["a", "b", "c"])),
    *(("/v1/score", "text_2", {"text_2": t}) for t in (None, 5, [None], {"text": "a"})),
    ("/v1/score", "text_1", {"text_2": []}),
    ("/v1/score", "text_2", {"text_2": ["a"] * 2049}),
    ("/v1/score", "priority", {"priority": "high"}),
    ("/v1/score", "stream", {"stream": True}),
    ("/v1/embeddings", "prompt_name", {"prompt_name": "nobody"}),
    ("/v1/embeddings", "prompt_name", {"prompt_name": 5}),
    ("/v1/embeddings", "truncate_prompt_tokens", {"truncate_prompt_tokens": 0}),
    ("/v1/embeddings", "input", {"input": "a " * 500}),
    ("/v1/embeddings", "dimensions", {"dimensions": 33}),
]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/rerank": {"query": QUERY, "documents": DOCUMENTS},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/v1/embeddings": {"input": "a"},
}


@pytest.mark.parametrize(("path", "param", "body"), BAD)
def test_bad_requests(
    ranker: LiveServer, embedder: LiveServer, path: str, param: str, body: dict[str, Any]
) -> None:
    live = embedder if path == "/v1/embeddings" else ranker
    answer = live.http.post(path, json={"model": MODEL, **GOOD[path], **body})
    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert param in error["message"] or "tokens" in error["message"]

"""/v1/embeddings and Ollama's /api/embed over a tiny model's real hidden states."""

from __future__ import annotations

import base64
import json
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

WIDTH = 64


@pytest.fixture(scope="module")
def live(tiny_model: Path) -> Iterator[LiveServer]:
    options = ServerOptions(served_model_names=(MODEL,))
    with live_server(tiny_model, "cpu", server=options, task="embed", pooling="mean") as server:
        yield server


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> Iterator[LLM]:
    with LLM(str(tiny_model), task="embed", pooling="mean") as llm:
        yield llm


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as client:
        yield client


def post(live: LiveServer, **body: Any) -> httpx.Response:
    return live.http.post("/v1/embeddings", json={"model": MODEL, "input": "hello", **body})


def vectors(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [np.array(one["embedding"], np.float32) for one in answer.json()["data"]]


def test_official_client(client: openai.OpenAI, llm: LLM) -> None:
    texts = ["hello", "a longer text than that", "x"]
    answer = client.embeddings.create(model=MODEL, input=texts)  # asks for base64
    expected = [output.embedding for output in llm.embed(texts, use_tqdm=False)]
    for place, (one, own) in enumerate(zip(answer.data, expected, strict=True)):
        assert one.index == place
        assert np.array(one.embedding, np.float32).tobytes() == own.tobytes()
    assert answer.usage.prompt_tokens == sum(map(len, texts))


def test_formats_agree(live: LiveServer) -> None:
    (numbers,) = vectors(post(live))
    raw = post(live, encoding_format="base64").json()["data"][0]["embedding"]
    assert base64.b64decode(raw) == numbers.tobytes()
    assert numbers.shape == (WIDTH,)
    assert np.linalg.norm(numbers) == pytest.approx(1, abs=1e-5)


def test_token_ids_are_the_same_text(live: LiveServer) -> None:
    (text,) = vectors(post(live, input="hi"))
    (ids,) = vectors(post(live, input=[104, 105]))
    one, two = vectors(post(live, input=[[104, 105], [97]]))
    assert text.tobytes() == ids.tobytes() == one.tobytes()
    assert two.tobytes() != one.tobytes()


def test_options(live: LiveServer, llm: LLM) -> None:
    (cut,) = vectors(post(live, dimensions=8))
    assert cut.shape == (8,)
    assert np.linalg.norm(cut) == pytest.approx(1, abs=1e-5)
    (last,) = vectors(post(live, pooling="last", normalize=False))
    own = llm.embed("hello", Pooling("last", normalize=False), use_tqdm=False)[0].embedding
    assert last.tobytes() == own.tobytes()
    short, same = vectors(post(live, input=["hello", "he"], truncate_prompt_tokens=2))
    assert short.tobytes() == same.tobytes()
    assert len(vectors(post(live, input="x" * 5000, truncate_prompt_tokens=-1))) == 1


def test_many_at_once(live: LiveServer) -> None:
    texts = [chr(97 + i % 26) * (1 + i % 7) for i in range(300)]
    found = vectors(post(live, input=texts))
    assert len(found) == 300
    assert found[0].tobytes() == vectors(post(live, input=texts[0]))[0].tobytes()
    assert live.wait_idle()["octavo:num_requests_running"] == 0


def test_ollama(live: LiveServer) -> None:
    (expected,) = vectors(post(live))
    answer = live.http.post("/api/embed", json={"model": MODEL, "input": ["hello", "b"]}).json()
    assert np.array(answer["embeddings"][0], np.float32).tobytes() == expected.tobytes()
    assert answer["prompt_eval_count"] == 6
    old = live.http.post("/api/embeddings", json={"model": MODEL, "prompt": "hello"}).json()
    raw = np.array(old["embedding"], np.float32)
    np.testing.assert_allclose(raw / np.linalg.norm(raw), expected, atol=1e-6)


def test_a_batch_of_embeddings(tiny_model: Path, tmp_path: Path) -> None:
    options = ServerOptions(served_model_names=(MODEL,), data_dir=str(tmp_path))
    line = {"custom_id": "a", "body": {"model": MODEL, "input": "hello"}}
    with live_server(tiny_model, server=options, task="embed") as live:
        form = {"file": ("in", json.dumps(line).encode())}
        file = live.http.post("/v1/files", files=form, data={"purpose": "batch"}).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/embeddings"}
        batch = live.http.post("/v1/batches", json={**body, "completion_window": "24h"}).json()
        while batch["status"] != "completed":
            batch = live.http.get(f"/v1/batches/{batch['id']}").json()
            assert batch["status"] not in ("failed", "expired")
        output = live.http.get(f"/v1/files/{batch['output_file_id']}/content").json()
        assert len(output["response"]["body"]["data"]) == 1
        assert batch["usage"]["input_tokens"] == 5


BAD: list[tuple[int, str, dict[str, Any]]] = [
    (400, "input", {"input": None}),
    (400, "input", {"input": 5}),
    (400, "input", {"input": {}}),
    (400, "input", {"input": ""}),
    (400, "input", {"input": []}),
    (400, "input", {"input": [""]}),
    (400, "input", {"input": ["ok", ""]}),
    (400, "input", {"input": [[]]}),
    (400, "input", {"input": [True]}),
    (400, "input", {"input": [320]}),
    (400, "input", {"input": [-1]}),
    (400, "input", {"input": [2**40]}),
    (400, "input", {"input": [[1], [2**31]]}),
    (400, "input", {"input": ["a"] * 2049}),
    (400, "input", {"input": "x" * 5000}),
    (404, "model", {"model": "gpt-4"}),
    (400, "model", {"model": 5}),
    (400, "encoding_format", {"encoding_format": "int8"}),
    (400, "encoding_format", {"encoding_format": 5}),
    (400, "dimensions", {"dimensions": 0}),
    (400, "dimensions", {"dimensions": "8"}),
    (400, "dimensions", {"dimensions": WIDTH + 1}),
    (400, "pooling", {"pooling": "max"}),
    (400, "normalize", {"normalize": 1}),
    (400, "truncate_prompt_tokens", {"truncate_prompt_tokens": 0}),
    (400, "truncate_prompt_tokens", {"truncate_prompt_tokens": -2}),
    (400, "surprise", {"surprise": 1}),
    (400, "messages", {"messages": [{"role": "user", "content": "x"}]}),
]


@pytest.mark.parametrize(("status", "param", "change"), BAD)
def test_bad_bodies(live: LiveServer, status: int, param: str, change: dict[str, Any]) -> None:
    answer = post(live, **change)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"].split("[")[0] == param


def test_bad_ollama_bodies(live: LiveServer) -> None:
    for path, body in [
        ("/api/embed", {"input": "x" * 5000, "truncate": False}),
        ("/api/embed", {"input": []}),
        ("/api/embed", {"input": 5}),
        ("/api/embed", {"input": "a", "dimensions": WIDTH + 1}),
        ("/api/embeddings", {"prompt": ""}),
        ("/api/embeddings", {"prompt": ["a"]}),
    ]:
        answer = live.http.post(path, json={"model": MODEL, **body})
        assert answer.status_code == 400, answer.text
        assert list(answer.json()) == ["error"]


def test_a_server_has_one_task(live: LiveServer, server: LiveServer) -> None:
    answer = live.complete("a")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    answer = post(server)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")

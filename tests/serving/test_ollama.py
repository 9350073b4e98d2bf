"""Ollama's chat and generate, by raw HTTP and through the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from octavo import __version__
from tests.serving.live_server import LiveServer

MESSAGES: list[Any] = [{"role": "user", "content": "say:Hello there"}]


def post(server: LiveServer, path: str = "/api/chat", **body: Any) -> httpx.Response:
    given = {"messages": MESSAGES} if path == "/api/chat" else {}
    return server.http.post(path, json={"model": "tiny", **given, **body})


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    """The lines of a stream, checked for their frame."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.text.endswith("\n")
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    return found


@pytest.fixture
def client(server: LiveServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as found:
        yield found


def test_chat_streams_unless_told_otherwise(server: LiveServer) -> None:
    found = lines(post(server))
    assert "".join(line["message"]["content"] for line in found) == "Hello there"
    last = found[-1]
    assert last["done_reason"] == "stop"
    assert last["eval_count"] == len("Hello there") + 1
    assert last["prompt_eval_count"] == len("user\nsay:Hello there\nassistant\n") + 3
    assert last["total_duration"] >= last["eval_duration"] > 0
    whole = post(server, stream=False).json()
    assert whole["message"] == {"role": "assistant", "content": "Hello there"}
    assert set(whole) == set(last)


def test_generate_uses_the_template_unless_raw(server: LiveServer) -> None:
    found = lines(post(server, "/api/generate", prompt="say:abc", system="x"))
    assert "".join(line["response"] for line in found) == "abc"
    body = {"prompt": "ab", "raw": True, "stream": False, "options": {"num_predict": 3}}
    whole = post(server, "/api/generate", **body).json()
    assert (whole["response"], whole["done_reason"]) == ("cde", "length")


def test_empty_requests_load_the_model(server: LiveServer) -> None:
    assert post(server, messages=[]).json()["done_reason"] == "load"
    assert post(server, "/api/generate").json()["done_reason"] == "load"
    assert post(server, "/api/generate", keep_alive=0).json()["response"] == ""


@pytest.mark.parametrize(
    "options",
    [
        {"num_predict": 4, "temperature": 0, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
        {"num_predict": 4, "seed": 7, "repeat_penalty": 1.1, "repeat_last_n": -1},
        {"num_predict": 4, "num_ctx": 2048, "num_gpu": 99, "use_mmap": True, "mirostat": 0},
        {"stop": ["o"], "presence_penalty": 0.1, "frequency_penalty": 0.1},
        {"stop": "o", "repeat_last_n": 64},
    ],
    ids=str,
)
def test_options_are_honoured(server: LiveServer, options: dict[str, Any]) -> None:
    assert post(server, stream=False, options=options).json()["message"]["content"] == "Hell"


def test_logprobs(server: LiveServer) -> None:
    whole = post(server, stream=False, logprobs=True, top_logprobs=2).json()["logprobs"]
    assert "".join(entry["token"] for entry in whole[:11]) == "Hello there"
    assert all(len(entry["top_logprobs"]) == 2 for entry in whole)
    found = lines(post(server, logprobs=True))
    assert "".join(e["token"] for x in found for e in x.get("logprobs", ()))[:11] == "Hello there"


BAD = [
    ("messages", {"messages": "hi"}),
    ("messages[0].role", {"messages": [{"role": "robot", "content": "x"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
    ("messages[0].images", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}),
    ("options.temperature", {"options": {"temperature": -1}}),
    ("options.top_k", {"options": {"top_k": "many"}}),
    ("options.num_ctx", {"options": {"num_ctx": 10**6}}),
    ("options.num_predict", {"options": {"num_predict": 0}}),
    ("options.mirostat", {"options": {"mirostat": 2}}),
    ("options.tfs_z", {"options": {"tfs_z": 0.5}}),
    ("options.surprise", {"options": {"surprise": 1}}),
    ("options.repeat_last_n", {"options": {"repeat_last_n": 64, "repeat_penalty": 1.2}}),
    ("options.stop", {"options": {"stop": [""]}}),
    ("options", {"options": 5}),
    ("format", {"format": "xml"}),
    ("think", {"think": "hard"}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 50}),
    ("stream", {"stream": "no"}),
    ("template", {"template": "x"}),
    ("tools[0].function", {"tools": [{"type": "function"}]}),
    ("surprise", {"surprise": 1}),
]


@pytest.mark.parametrize(("field", "body"), BAD, ids=str)
def test_bad_requests_name_the_field(server: LiveServer, field: str, body: dict[str, Any]) -> None:
    answer = post(server, **body)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error"}
    assert field in answer.json()["error"]


def test_other_errors_have_ollamas_shape(server: LiveServer) -> None:
    answers = [
        (post(server, model="gpt"), 404),
        (server.http.get("/api/chat"), 405),
        (server.http.post("/api/create", json={}), 404),
        (server.http.post("/api/chat", content=b"["), 400),
        (server.http.post("/api/chat", content=b"x" * 2**24), 413),
    ]
    for answer, status in answers:
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}


def test_models(server: LiveServer, client: ollama.Client) -> None:
    assert server.http.head("/").status_code == 200
    assert server.http.get("/api/version").json() == {"version": __version__}
    listed = client.list().models
    assert [model.model for model in listed] == ["tiny:latest"]
    assert listed[0].size
    assert listed[0].digest
    running = client.ps().models
    assert running[0].context_length == 4096
    shown = client.show("tiny:latest")
    assert shown.details
    assert shown.details.family == "llama"
    assert "im_start" in (shown.template or "")
    assert "completion" in (shown.capabilities or [])
    assert client.pull("tiny").status == "success"
    with pytest.raises(ollama.ResponseError, match="does not exist"):
        client.show("other")


def test_official_client(client: ollama.Client) -> None:
    chat = client.chat("tiny:latest", MESSAGES, options={"temperature": 0})
    assert (chat.model, chat.message.content, chat.done) == ("tiny:latest", "Hello there", True)
    pieces = client.chat("tiny", MESSAGES, stream=True, keep_alive="5m")
    assert "".join(piece.message.content or "" for piece in pieces) == "Hello there"
    assert client.generate("tiny", "say:x y").response == "x y"
    assert "".join(p.response or "" for p in client.generate("tiny", "say:xy", stream=True)) == "xy"
    with pytest.raises(ollama.ResponseError, match=r"options\.top_p") as caught:
        client.chat("tiny", MESSAGES, options={"top_p": 5})
    assert caught.value.status_code == 400


async def test_official_async_client(server: LiveServer) -> None:
    async with ollama.AsyncClient(host=server.url) as client:
        text = ""
        async for piece in await client.chat("tiny", MESSAGES, stream=True):
            text += piece.message.content or ""
    assert text == "Hello there"


def test_a_gap_needs_a_model_that_can_fill_it(server: LiveServer) -> None:
    answer = post(server, "/api/generate", prompt="a", suffix="b")
    assert answer.status_code == 400
    assert "suffix" in answer.json()["error"]

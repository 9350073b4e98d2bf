"""Junk in every field of every route: never a 5xx, always the protocol's error shape, and the field
is named. The tables of single faults are in each protocol's own module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server

JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 2**200, 1e300, "", "x", "\x00", "9" * 40),
    *([], [None], [[]], [{}], ["x"], [2**40], [True], {}, {"": None}, {"x": 1}, {"type": "x"}),
    [{"type": []}],
    [{"type": "function"}],
    {"type": "function", "function": {"name": "\x00", "parameters": 5}},
    [{"role": "user", "content": [{"type": "text", "text": None}]}],
    {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}, "name": "x"}},
    [[[[[[[[]]]]]]]],
]
USER = [{"role": "user", "content": "hi"}]
SAMPLING = (
    *("model", "stream", "stream_options", "n", "max_tokens", "temperature", "top_p", "top_k"),
    *("seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "min_p", "min_tokens"),
    *("repetition_penalty", "stop_token_ids", "priority", "cache_salt", "user", "metadata"),
    *("response_format", "structured_outputs", "bad_words", "allowed_token_ids", "logprobs"),
    *("truncate_prompt_tokens", "repetition_detection", "unheard_of", "prompt_logprobs"),
)
CHAT_FIELDS = (
    *SAMPLING,
    *(
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "top_logprobs",
        "reasoning_effort",
    ),
    *("max_completion_tokens", "chat_template_kwargs", "add_generation_prompt", "chat_template"),
    *("continue_final_message", "documents", "modalities"),
)
ROUTES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions": ({"messages": USER, "max_tokens": 2}, CHAT_FIELDS),
    "/v1/completions": (
        {"prompt": "a", "max_tokens": 2},
        (*SAMPLING, "prompt", "echo", "suffix", "best_of", "add_special_tokens"),
    ),
    "/v1/responses": (
        {"input": "hi", "max_output_tokens": 16},
        (
            *("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning"),
            *("temperature", "top_p", "top_logprobs", "store", "stream", "metadata", "include"),
            *("previous_response_id", "max_output_tokens", "truncation", "background", "prompt"),
            *("parallel_tool_calls", "max_tool_calls", "conversation", "unheard_of"),
        ),
    ),
    "/v1/messages": (
        {"messages": USER, "max_tokens": 2},
        (
            *("model", "messages", "max_tokens", "system", "stop_sequences", "temperature"),
            *("top_k", "top_p", "tools", "tool_choice", "thinking", "metadata", "stream"),
            *("service_tier", "output_config", "container", "unheard_of"),
        ),
    ),
    "/v1/messages/count_tokens": (
        {"messages": USER},
        ("model", "messages", "system", "tools", "tool_choice", "thinking", "unheard_of"),
    ),
    "/api/chat": (
        {"messages": USER, "stream": False, "options": {"num_predict": 2}},
        ("model", "messages", "options", "format", "think", "tools", "stream", "keep_alive", "x"),
    ),
    "/api/generate": (
        {"prompt": "a", "stream": False, "options": {"num_predict": 2}},
        (
            *("model", "prompt", "suffix", "system", "template", "raw", "images", "context"),
            *("options", "format", "think", "stream", "keep_alive", "x"),
        ),
    ),
    "/api/show": ({}, ("model", "verbose", "x")),
    "/api/embed": ({"input": "a"}, ("model", "input", "truncate", "dimensions", "options", "x")),
    "/tokenize": (
        {"prompt": "a"},
        ("model", "prompt", "content", "messages", "add_special_tokens", "with_pieces", "x"),
    ),
    "/detokenize": ({"tokens": [97]}, ("model", "tokens", "skip_special_tokens", "x")),
    "/apply-template": ({"messages": USER}, ("model", "messages", "tools", "chat_template", "x")),
    "/v1/rerank": (
        {"query": "a", "documents": ["b", "c"]},
        (
            *("model", "query", "documents", "top_n", "return_documents", "max_tokens_per_doc"),
            *("truncate_prompt_tokens", "use_activation", "priority", "unheard_of"),
        ),
    ),
    "/v1/score": (
        {"text_1": "a", "text_2": "b"},
        (
            *("model", "text_1", "text_2", "truncate_prompt_tokens", "use_activation"),
            *("priority", "unheard_of"),
        ),
    ),
    "/v1/embeddings": (
        {"input": "a"},
        (
            *("model", "input", "encoding_format", "dimensions", "pooling", "normalize"),
            *("truncate_prompt_tokens", "add_special_tokens", "priority", "unheard_of"),
            "prompt_name",
        ),
    ),
    "/v1/batches": (
        {"input_file_id": "file-1", "endpoint": "/v1/completions", "completion_window": "24h"},
        ("input_file_id", "endpoint", "completion_window", "metadata", "unheard_of"),
    ),
}
EMBEDS = re.compile("embed|rerank|score")
CASES = [(path, field) for path, (_, fields) in ROUTES.items() for field in fields]
RAW = [
    *(b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff", b"a=b", b"[" * 20_000, b'{"a":' * 300),
    rb'{"model": "\ud800"}',
]


@pytest.fixture(scope="module")
def live(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = str(tmp_path_factory.mktemp("data"))
    options = ServerOptions(served_model_names=(MODEL,), data_dir=folder)
    with live_server(tiny_model, server=options) as server:
        yield server


@pytest.fixture(scope="module")
def embedder(tiny_model: Path) -> Iterator[LiveServer]:
    options = ServerOptions(served_model_names=(MODEL,))
    with live_server(tiny_model, server=options, task="embed") as server:
        yield server


def message_of(path: str, answer: httpx.Response) -> str:
    """The error's text, its shape checked."""
    body = answer.json()
    if path.startswith("/api/"):
        assert list(body) == ["error"], body
        return str(body["error"])
    if path.startswith("/v1/messages"):
        assert set(body) == {"type", "error", "request_id"}, body
        assert set(body["error"]) == {"type", "message"}
        return str(body["error"]["message"])
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    return f"{body['error']['param']}: {body['error']['message']}"


def send(server: LiveServer, path: str, body: dict[str, Any]) -> httpx.Response:
    return server.http.post(path, content=json.dumps(body))


@pytest.mark.parametrize(("path", "field"), CASES)
def test_junk(live: LiveServer, embedder: LiveServer, path: str, field: str) -> None:
    server = embedder if EMBEDS.search(path) else live
    good = {**({} if path == "/v1/batches" else {"model": MODEL}), **ROUTES[path][0]}
    refused = 0
    for junk in JUNK:
        answer = send(server, path, {**good, field: junk})
        assert answer.status_code < 500, (junk, answer.text)
        if answer.status_code >= 400:
            refused += 1
            said = message_of(path, answer)
            assert 0 < len(said) < 1000
            named = field in said or answer.status_code == 404
            assert named or NAMED_OTHERWISE.get(field, field) in said, (junk, said)
    assert refused or field in ALWAYS_FINE, "this field is not checked at all"


NAMED_OTHERWISE = {
    "tools": "tool",
    "best_of": "n",
    "echo": "prompt",
    "structured_outputs": "grammar",
    "stream": "stream_options",
    "continue_final_message": "messages",
    "add_generation_prompt": "messages",
}
"""Fields whose junk may be told under another field's name."""
ALWAYS_FINE = {"user", "metadata", "keep_alive", "service_tier"}
"""Labels: any value does no harm."""


@pytest.mark.parametrize("path", ROUTES)
def test_missing_fields_and_raw_bytes(live: LiveServer, embedder: LiveServer, path: str) -> None:
    server = embedder if EMBEDS.search(path) else live
    good = {**({} if path == "/v1/batches" else {"model": MODEL}), **ROUTES[path][0]}
    for name in good:
        answer = send(server, path, {key: good[key] for key in good if key != name})
        assert answer.status_code < 500, answer.text
    for raw in RAW:
        answer = server.http.post(path, content=raw)
        assert answer.status_code == 400, (raw[:20], answer.text)
        message_of(path, answer)


def test_it_still_answers(live: LiveServer, embedder: LiveServer) -> None:
    assert live.wait_idle()
    assert live.complete("a", max_tokens=1).status_code == 200
    assert send(embedder, "/v1/embeddings", {"model": MODEL, "input": "a"}).status_code == 200

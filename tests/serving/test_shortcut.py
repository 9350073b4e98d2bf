"""Plain tokens of a stream go past the application's layers; nobody can tell."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.serving.openai.completions import CompletionFormat
from octavo.serving.shortcut import Channel
from tests.serving.live_server import LiveServer, live_server

COMPLETION = {"model": "tiny", "prompt": "a", "max_tokens": 20, "stream": True, "temperature": 0}
CHAT = {**COMPLETION, "messages": [{"role": "user", "content": 'say:a "quoted"\nline — 文字'}]}
del CHAT["prompt"]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What goes the short way."""
    found: list[bytes] = []
    write = Channel.write

    def watched(channel: Channel, data: bytes) -> None:
        found.append(data)
        write(channel, data)

    monkeypatch.setattr(Channel, "write", watched)
    return found


def raw(server: LiveServer, path: str, body: dict[str, Any], version: str) -> tuple[bytes, bytes]:
    """(head, body) of an answer as it comes over the wire."""
    address, data = urlsplit(server.url), json.dumps(body).encode()
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        fields = f"Host: x\r\nContent-Length: {len(data)}\r\nConnection: close"
        connection.sendall(f"POST {path} HTTP/{version}\r\n{fields}\r\n\r\n".encode() + data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, rest = answer.partition(b"\r\n\r\n")
    return head, rest


def unchunked(body: bytes) -> bytes:
    """The data of all chunks; fails where they are not well formed or not ended."""
    found = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        found += body[:length]
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]
        if not length:
            assert body == b""
            return found


def events(body: bytes) -> list[Any]:
    """Without what differs from answer to answer."""
    lines = [line for line in body.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    found = [json.loads(line.removeprefix("data: ")) for line in lines]
    return [{**event, "id": "", "created": 0} for event in found]


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize(
    ("path", "body"), [("completions", COMPLETION), ("chat/completions", CHAT)]
)
def test_the_short_way_says_what_the_long_way_says(
    slow_server: LiveServer, written: list[bytes], path: str, body: dict[str, Any], usage: bool
) -> None:
    if usage:
        body = {**body, "stream_options": {"include_usage": True}}
    head, chunks = raw(slow_server, f"/v1/{path}", body, "1.1")
    assert b"transfer-encoding: chunked" in head.lower()
    assert len(written) > 5
    written.clear()
    _, plain = raw(slow_server, f"/v1/{path}", body, "1.0")  # has no chunks
    assert not written
    assert events(unchunked(chunks)) == events(plain)


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"logprobs": 1},
        {"return_token_ids": True},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ],
)
def test_what_is_more_than_text_goes_the_long_way(
    slow_server: LiveServer, written: list[bytes], more: dict[str, Any]
) -> None:
    answer = slow_server.complete(stream=True, max_tokens=8, **more)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert not written


def test_sizes_and_tokens_are_counted(slow_server: LiveServer, written: list[bytes]) -> None:
    before = slow_server.metrics()
    size = len(slow_server.complete(stream=True, max_tokens=20, ignore_eos=True).content)
    after = slow_server.wait_idle()
    assert written
    name = "octavo:http_response_size_bytes_sum"
    assert after[name] - before[name] >= size  # and the page of metrics
    name = "octavo:inter_token_latency_seconds_count"
    assert after[name] - before[name] == 19


class Upper:
    """A layer that changes bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def change(message: Message) -> None:
            if "body" in message:
                message["body"] = message["body"].upper()
            await send(message)

        await self._app(scope, receive, change)


def test_a_layer_that_others_added_sees_every_body(tiny_model: Path, written: list[bytes]) -> None:
    with live_server(tiny_model, backend="slow", shim=Upper) as server:
        answer = server.complete(stream=True, max_tokens=20)
    assert "DATA: [DONE]" in answer.text
    assert "data" not in answer.text
    assert not written


def test_an_error_on_the_short_way_hurts_its_stream_only(
    slow_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(CompletionFormat, "briefly", fail)
    with pytest.raises(httpx.RemoteProtocolError):
        slow_server.complete(stream=True, max_tokens=2000, ignore_eos=True)
    monkeypatch.undo()
    assert slow_server.complete(stream=True, max_tokens=8).text.endswith("data: [DONE]\n\n")
    assert slow_server.wait_idle()["octavo:kv_blocks_used"] == 0

"""Every failure, whoever notices it, comes in the shape of the protocol that was spoken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import ollama
import pytest

from octavo.serving import ServerOptions
from octavo.serving.errors import ApiError
from tests.serving.live_server import MODEL, LiveServer, live_server

STATUSES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
VERSION = {"anthropic-version": "2023-06-01"}


def scope(path: str, headers: dict[str, str]) -> dict[str, Any]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": path, "headers": raw, "state": {"request_id": "r1"}}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("path", "headers", "protocol"),
    [
        ("/v1/chat/completions", {}, "openai"),
        ("/v1/responses/x", VERSION, "openai"),
        ("/v1/models", {}, "openai"),
        ("/v1/models/x", VERSION, "anthropic"),
        ("/v1/messages", {}, "anthropic"),
        ("/v1/messages/batches", {}, "anthropic"),
        ("/v1/messagesx", {}, "openai"),
        ("/api/chat", {}, "ollama"),
        ("/api", {}, "ollama"),
        ("/apix", {}, "openai"),
        ("/nowhere", {}, "openai"),
    ],
)
def test_shapes(path: str, headers: dict[str, str], protocol: str, status: int) -> None:
    answer = ApiError(status, "no", param="p", retry_after_s=3).response(scope(path, headers))
    body = json.loads(bytes(answer.body))
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "3"
    expected = {
        "openai": {"message": "no", "type": "invalid_request_error", "param": "p", "code": None},
        "anthropic": {"type": STATUSES[status], "message": "no"},
        "ollama": "no",
    }
    assert body["error"] == expected[protocol]
    if protocol == "anthropic":
        assert (body["type"], body["request_id"]) == ("error", "r1")


@pytest.fixture(scope="module")
def locked(tiny_model: Path) -> Iterator[LiveServer]:
    """A server that wants a key."""
    options = ServerOptions(served_model_names=(MODEL,), api_keys=("secret",))
    with live_server(tiny_model, server=options) as live:
        yield live


def test_keys_by_protocol(locked: LiveServer) -> None:
    refused = locked.http.post("/v1/messages", json={})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.headers["request-id"] == refused.json()["request_id"]
    refused = locked.http.post("/api/chat", json={})
    assert (refused.status_code, set(refused.json())) == (401, {"error"})
    refused = locked.http.get("/v1/responses/x")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    said: Any = [{"role": "user", "content": "say:in"}]
    with anthropic.Anthropic(base_url=locked.url, api_key="secret") as client:
        made = client.messages.create(model=MODEL, max_tokens=9, messages=said)
    assert made.content[0].type == "text"
    assert made.content[0].text == "in"
    with (
        anthropic.Anthropic(base_url=locked.url, api_key="other", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.models.list()
    with ollama.Client(host=locked.url, headers={"authorization": "Bearer secret"}) as found:
        assert found.chat(MODEL, said).message.content == "in"


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", "/v1/responses"])
def test_deadlines_hold_in_every_protocol(slow_server: LiveServer, path: str) -> None:
    said = [{"role": "user", "content": "say:" + "x" * 500}]
    body: dict[str, Any] = {"model": MODEL, "stream": False, "deadline": 0.1}
    body |= {"input": said} if path == "/v1/responses" else {"messages": said}
    body |= {"max_tokens": 1000} if path == "/v1/messages" else {}
    answer = slow_server.http.post(path, json=body)
    assert answer.status_code in (408, 504), answer.text
    slow_server.wait_idle()

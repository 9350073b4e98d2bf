"""Calls one of the app's own routes from within: what a batch runs, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Scope

INNER = "octavo.inner"
"""Key in an ASGI scope that marks such a call. No client can set it: it is not in the headers."""


async def call_route(app: ASGIApp, path: str, body: bytes, tenant: str = "") -> tuple[int, Any]:
    """POST `body` to `path` for a tenant; (status, JSON of the answer). Cancelling aborts it."""
    answer = _Answer(body)
    await app(_scope(path, len(body), tenant), answer.receive, answer.send)
    return answer.status, msgspec.json.decode(b"".join(answer.parts) or b"null")


class _Answer:
    """Both directions of one call."""

    def __init__(self, body: bytes) -> None:
        self.status = 500
        self.parts: list[bytes] = []
        self._body: bytes | None = body

    async def receive(self) -> Message:
        """The body, then nothing: this client never goes away."""
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Keep the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))


def _scope(path: str, length: int, tenant: str) -> Scope:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": None,
        "state": {"tenant": tenant},
        INNER: True,
    }

"""API keys: every route but /health wants one, if any are set."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.serving.errors import ApiError
from octavo.serving.inner import INNER

OPEN_PATHS = frozenset({"/health"})


class ApiKeys:
    """ASGI middleware that answers 401 to requests without "Authorization: Bearer KEY" or
    "x-api-key: KEY", which Anthropic's clients send."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allows(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(401, "Incorrect or missing API key.", code="invalid_api_key")
        await error.response(scope)(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        if INNER in scope:  # a batch: who made it had a key
            return True
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")]
        # All keys are compared, each in constant time.
        matches = [
            hmac.compare_digest(candidate.strip().encode(), key)
            for candidate in given
            for key in self._keys
        ]
        return any(matches)

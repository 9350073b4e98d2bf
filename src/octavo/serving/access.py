"""Who may call: every route but health and the page's files wants an API key, if any are set."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.serving.errors import ApiError
from octavo.serving.inner import INNER
from octavo.serving.keys import Keyring
from octavo.serving.record import current_record

OPEN_PATHS = frozenset({"/", "/favicon.ico"})  # a browser cannot send a key with its first request
OPEN_FOLDERS = ("/health/", "/page/")


def is_open(path: str) -> bool:
    """Whether a path answers without a key."""
    return path in OPEN_PATHS or (path + "/").startswith(OPEN_FOLDERS)


class ApiKeys:
    """ASGI middleware that answers 401 to requests without "Authorization: Bearer KEY" or
    "x-api-key: KEY", which Anthropic's clients send. The key's name becomes the request's tenant:
    `request.state.tenant`."""

    def __init__(self, app: ASGIApp, keyring: Keyring) -> None:
        self._app, self._keyring = app, keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if INNER in scope:  # a batch: who made it had a key
            await self._app(scope, receive, send)
            return
        name = self._name(Headers(scope=scope))
        if name is None and not is_open(scope["path"]):
            error = ApiError(401, "Incorrect or missing API key.", code="invalid_api_key")
            await error.response(scope)(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = name or ""
        record = current_record()
        if record is not None:
            record.tenant = name or ""
        await self._app(scope, receive, send)

    def _name(self, headers: Headers) -> str | None:
        """The name of the key that is sent, in either header."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")]
        found = [self._keyring.find(candidate.strip()) for candidate in given]
        return found[0] or found[1]

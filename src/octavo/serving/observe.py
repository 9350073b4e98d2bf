"""The outermost layer: gives every request an id, and says in logs, metrics and traces how it went.

An error that no handler expected becomes a 500 here, so that it, too, has an id and a log line.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.serving.error_shapes import speaks_anthropic
from octavo.serving.errors import ApiError
from octavo.serving.metrics import Metrics
from octavo.serving.record import RequestRecord, enter

REQUEST_ID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
QUIET = ("/health", "/metrics", "/status", "/page/")  # asked for every few seconds
CLIENT_GONE = 499

_log = logging.getLogger("octavo.request")


class Tracer(Protocol):
    """Makes spans; serving.tracing.Tracing is one."""

    def begin(self, scope: Scope, record: RequestRecord) -> Any:
        """A span for the request."""

    def end(self, span: Any, record: RequestRecord, status: int, route: str) -> None:
        """The request is over."""

    def close(self) -> None:
        """No more requests will come."""


class Observer:
    """ASGI middleware. always_timings: every caller gets timings, not only those who ask."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracer: Tracer | None = None,
        always_timings: bool = False,
    ) -> None:
        self.app, self.metrics, self.tracer = app, metrics, tracer
        self.always_timings = always_timings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and watch it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its answer."""

    def __init__(self, observer: Observer, scope: Scope, receive: Receive, send: Send) -> None:
        self._observer, self._scope = observer, scope
        self._raw_receive, self._raw_send = receive, send
        self._status, self._in_bytes, self._out_bytes = 0, 0, 0
        self._is_sent = False  # the whole answer
        headers = Headers(scope=scope)
        given = headers.get("x-request-id")
        self._id_is_bad = given is not None and REQUEST_ID.fullmatch(given) is None
        wanted = headers.get("x-octavo-timings", "").strip().lower()
        self._record = RequestRecord(
            given if given and not self._id_is_bad else uuid.uuid4().hex,
            scope["method"],
            scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace"),
            tenant=scope.get("state", {}).get("tenant", ""),  # of a batch's request
            wants_timings=observer.always_timings,
        )
        if wanted in ("1", "true", "yes"):
            self._record.ask_for_timings()

    async def run(self) -> None:
        """Answer, whatever happens, and note it."""
        enter(self._record)
        self._scope.setdefault("state", {})["request_id"] = self._record.request_id
        tracer = self._observer.tracer
        span = tracer.begin(self._scope, self._record) if tracer else None
        try:
            await self._answer()
        except Exception as error:
            await self._fail(error)
        finally:
            self._record.over = True
            self._note()
            if tracer:
                tracer.end(span, self._record, self._status or CLIENT_GONE, self._route())

    async def _answer(self) -> None:
        if self._id_is_bad:
            message = "X-Request-Id: expected 1 to 128 letters, digits or any of . _ ~ : / + = @ -"
            error = ApiError(400, message, param="X-Request-Id", code="invalid_request_id")
            await error.response(self._scope)(self._scope, self._receive, self._send)
        elif self._scope["state"].get("crowded") and not self._record.path.startswith(QUIET):
            headers = {"Connection": "close"}
            message = "Too many connections; retry later."
            error = ApiError(
                *(503, message), code="too_many_connections", retry_after_s=1, headers=headers
            )
            await error.response(self._scope)(self._scope, self._receive, self._send)
        else:
            await self._observer.app(self._scope, self._receive, self._send)

    async def _fail(self, error: Exception) -> None:
        """Answer 500, or, if an answer has begun, let the server break the connection."""
        fields = {"request_id": self._record.request_id}
        _log.error("unexpected error", exc_info=error, extra={"fields": fields})
        if self._status:
            raise error
        message = "The server had an error while processing the request; its log says more."
        answer = ApiError(500, message, kind="server_error", code="internal_error")
        await answer.response(self._scope)(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        message = await self._raw_receive()
        if message["type"] == "http.request":
            self._in_bytes += len(message.get("body", b""))
        elif not self._is_sent:
            self._record.client_gone = True
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers()]
        else:
            self._out_bytes += len(message.get("body", b""))
            self._is_sent = not message.get("more_body", False)
        await self._raw_send(message)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        request_id = self._record.request_id.encode()
        headers = [(b"x-request-id", request_id)]
        if speaks_anthropic(self._record.path, Headers(scope=self._scope)):
            headers.append((b"request-id", request_id))
        timings = self._record.timings() if self._record.wants_timings else None
        if timings is not None:  # the answer is whole; a stream's come as its last event
            parts = [
                f"{name.removesuffix('_ms')};dur={value}"
                for name, value in timings.items()
                if name.endswith("_ms") and value is not None
            ]
            headers.append((b"server-timing", ", ".join(parts).encode()))
        return headers

    def _route(self) -> str:
        """The pattern of the route: a client cannot make up values of it."""
        return getattr(self._scope.get("route"), "path", "none")

    def _note(self) -> None:
        record, status = self._record, self._status or CLIENT_GONE
        duration_s = time.monotonic() - record.began_s
        out_bytes = self._out_bytes + record.shortcut_bytes
        self._observer.metrics.http.answered(
            record.method, self._route(), status, duration_s, self._in_bytes, out_bytes
        )
        quiet = status < 500 and (record.path == "/" or record.path.startswith(QUIET))
        level = logging.DEBUG if quiet else logging.INFO
        client = self._scope.get("client")
        log_request(record, status, client[0] if client else None, level)


def log_request(
    record: RequestRecord, status: int | str, client: str | None = None, level: int = logging.INFO
) -> None:
    """The one line of a request that is over."""
    fields = {
        "request_id": record.request_id,
        "status": status,
        "duration_s": round(time.monotonic() - record.began_s, 6),
        "client": client,
        "tenant": record.tenant or None,
        "trace_id": record.trace_id or None,
        "model": record.model or None,
        "client_gone": record.client_gone or None,
        **record.fields(),
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    _log.log(level, "%s %s %s", record.method, record.path, status, extra={"fields": fields})

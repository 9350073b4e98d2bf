"""Limits on clients that are slow on purpose or too many: heads and bodies that trickle in, answers
that nobody reads, connections without end.

uvicorn bounds the size of a head and the idle time between requests; the rest is here, in its
protocol class, because an application only sees requests whose heads are complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.serving.http_metrics import HttpMetrics
from octavo.serving.options import ClientLimits
from octavo.serving.shortcut import CONNECTION

RESERVE = 32  # connections above the limit that are still heard, for probes: see Observer
MAX_UNWANTED = 16 * 2**20  # bytes of a body that still come after its request was refused


def guarded(limits: ClientLimits, counts: HttpMetrics, open_way: bool = False) -> type[H11Protocol]:
    """uvicorn's protocol with these limits. open_way: bodies come from the application as its
    routes send them, so that a Channel may take their place."""
    fields = {"limits": limits, "counts": counts, "open_way": open_way}
    return type("Guarded", (GuardedProtocol,), fields)


class GuardedProtocol(H11Protocol):
    """Made by `guarded`."""

    limits: ClientLimits
    counts: HttpMetrics
    open_way: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._received = 0  # bytes since the connection was made
        self._refused: object = None  # the request whose body nobody wants
        self._num_unwanted = 0  # bytes of it
        self._window_start = 0  # of them, those before the present window of the body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        number = self.counts.num_connections = len(self.connections)
        limit = self.limits.max_connections
        if number > limit + RESERVE:
            self._cut("connections", 503)
            return
        if number > limit:
            self.app_state = {**self.app_state, "crowded": True}
        if self.open_way:
            self.app_state = {**self.app_state, CONNECTION: self}
        self._head_timer = self._after(self.limits.header_timeout_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self.counts.num_connections = len(self.connections)
        for timer in (self._head_timer, self._body_timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Part of a head or a body."""
        self._received += len(data)
        if self._is_unwanted(len(data)):
            self.counts.cut["body"] += 1
            self.transport.abort()
            return
        super().data_received(data)
        self._follow()

    def _is_unwanted(self, size: int) -> bool:
        """Whether this is too much of a body that has been refused already. A client may send the
        rest of a small one before it reads the answer."""
        cycle = self.cycle
        if cycle is None or not (cycle.response_complete and cycle.more_body):
            return False
        if cycle is not self._refused:
            self._refused, self._num_unwanted = cycle, 0
        self._num_unwanted += size
        return self._num_unwanted > MAX_UNWANTED

    def on_response_complete(self) -> None:
        """An answer is sent; what came behind its request may be the next head already."""
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._write_timer = self._after(self.limits.write_timeout_s, self._reader_is_late)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._write_timer = _stopped(self._write_timer)

    def _follow(self) -> None:
        """Run the timers of what the client owes now."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        reading_body = cycle is not None and cycle.more_body
        idle = cycle is None or (cycle.response_complete and not cycle.more_body)
        if idle and self.conn.trailing_data[0]:
            if self._head_timer is None:
                self._head_timer = self._after(self.limits.header_timeout_s, self._head_is_late)
        else:
            self._head_timer = _stopped(self._head_timer)
        if not reading_body:
            self._body_timer = _stopped(self._body_timer)
        elif self._body_timer is None:
            self._open_window()

    def _open_window(self) -> None:
        self._window_start = self._received
        self._body_timer = self._after(self.limits.body_timeout_s, self._close_window)

    def _close_window(self) -> None:
        expected = self.limits.min_body_bytes_per_s * self.limits.body_timeout_s
        if self._received - self._window_start >= expected or self.flow.read_paused:
            self._open_window()
        else:
            self._cut("body", 408)

    def _head_is_late(self) -> None:
        self._cut("header", 408 if self._received else None)

    def _reader_is_late(self) -> None:
        self.counts.cut["write"] += 1
        self.transport.abort()

    def _cut(self, reason: str, status: int | None) -> None:
        """Say why, unless an answer has begun, and end the connection."""
        self.counts.cut[reason] += 1
        begun = self.cycle is not None and self.cycle.response_started
        if status is not None and not (begun and not self.cycle.response_complete):
            phrase = {408: "Request Timeout", 503: "Service Unavailable"}[status]
            retry = "Retry-After: 1\r\n" if status == 503 else ""
            head = f"HTTP/1.1 {status} {phrase}\r\nConnection: close\r\n{retry}Content-Length: 0"
            self.transport.write(f"{head}\r\n\r\n".encode())
        self.transport.close()

    def _after(self, delay_s: float, action: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, action)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """What to keep of a timer that is no longer needed: nothing."""
    if timer is not None:
        timer.cancel()
    return None

"""Work for a client stops when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.serving.record import current_record
from octavo.serving.shortcut import Shortcut, channel_of

Result = TypeVar("Result")


class ClientGoneError(Exception):
    """The client closed the connection before its answer was ready."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client disconnects (ClientGoneError).

    To be used after the body has been read: then the next message is the disconnect.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        await _cancel(task, gone)


class Primed(NamedTuple):
    """Events, the first of which has come."""

    first: bytes
    rest: AsyncGenerator[bytes]


class EventStream(Response):
    """Server-sent events, or lines of JSON. `events` yields whole events ("data: ...\\n\\n"); it is
    closed as soon as they are all sent or the client is gone. shortcut: what writes other events
    of the answer while the next one of `events` is waited for."""

    def __init__(
        self,
        events: Primed,
        media_type: str = "text/event-stream",
        shortcut: Shortcut | None = None,
    ) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._events, self._shortcut = events, shortcut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        try:
            await unless_gone(receive, self._send_all(scope, send))
        except ClientGoneError:
            pass
        finally:
            self._close_shortcut()
            await self._events.rest.aclose()

    def _close_shortcut(self) -> None:
        if self._shortcut is not None:
            self._shortcut.close()
            if (record := current_record()) is not None:
                record.shortcut_bytes += self._shortcut.num_bytes

    async def _send_all(self, scope: Scope, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        first, rest = self._events
        await send({"type": "http.response.body", "body": first, "more_body": True})
        if self._shortcut is not None:
            self._shortcut.open(channel_of(scope))
        async for event in rest:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def primed(receive: Receive, events: AsyncGenerator[bytes]) -> Primed:
    """`events` after its first one has come, so that an error before it can still choose the
    status of the answer. Raises what the first event raised, or ClientGoneError."""

    async def first_event() -> bytes:
        return await anext(events)

    first = await unless_gone(receive, first_event())
    return Primed(first, events)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

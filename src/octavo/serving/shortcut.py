"""The way of a plain token of a streamed answer: from the engine's word for it to the connection.

Nothing waits for it or wakes for it: no task, no generator, no layer of the application. What opens
an answer, ends it or goes wrong in it passes all of those, and so does everything while the
connection takes nothing, or where there is no Channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Scope

from octavo.engine.types import Delta

if TYPE_CHECKING:
    from octavo.serving.guard import GuardedProtocol

CONNECTION = "octavo.connection"
"""Key in the state of an ASGI scope: the connection, where bodies reach it as they were sent."""


class Channel:
    """A connection while it carries one answer, in chunks, whose beginning has been sent."""

    def __init__(self, connection: GuardedProtocol) -> None:
        self._transport, self._flow = connection.transport, connection.flow
        self._cycle = connection.cycle

    @property
    def is_clear(self) -> bool:
        """Whether a chunk may be written now."""
        return not (
            self._flow.write_paused or self._cycle.disconnected or self._transport.is_closing()
        )

    def write(self, data: bytes) -> None:
        """Write a chunk, which is not empty, as h11 would, whose state no chunk changes."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def channel_of(scope: Scope) -> Channel | None:
    """For the answer to a request, which has no length given; None where h11 has to write it."""
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is None or scope["http_version"] != "1.1" or scope["method"] == "HEAD":
        return None
    return Channel(connection)


class Shortcut:
    """event: writes what a delta shows; b"" if nothing."""

    def __init__(self, event: Callable[[Delta], bytes]) -> None:
        self._event = event
        self._channel: Channel | None = None
        self.num_bytes = 0  # that went this way

    def open(self, channel: Channel | None) -> None:
        """All that was said so far is on its way; the rest may follow here."""
        self._channel = channel

    def close(self) -> None:
        """The answer is over, or nobody reads it any more."""
        self._channel = None

    @property
    def is_open(self) -> bool:
        """Whether the next delta may go this way."""
        return self._channel is not None and self._channel.is_clear

    def show(self, delta: Delta) -> None:
        """Write a delta; only while it is open."""
        data = self._event(delta)
        if data and self._channel is not None:
            self.num_bytes += len(data)
            self._channel.write(data)

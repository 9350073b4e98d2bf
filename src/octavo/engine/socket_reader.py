"""Hands what comes to a ZeroMQ socket to a function, from within an event loop.

zmq.asyncio has a future and several callbacks for each message, which cost as much as all else that
is done with the tokens of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

_MAX_ROUND = 64  # messages in a row before others of the loop have their turn


class SocketReader:
    """Reads from its construction, in the running loop, to `close`.

    failed: a future that gets what `take` raises; then nothing more is read.
    """

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self._take = socket, take
        self._next: asyncio.Handle | None = None
        self._is_closed = False
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._read)
        self.look_again()

    def look_again(self) -> None:
        """Read once more soon. The descriptor tells only of changes: not of messages that were
        noticed while something was sent, nor of those that a round has left."""
        if self._next is None and not self._is_closed:
            self._next = self._loop.call_soon(self._read)

    def close(self) -> None:
        """Read nothing more."""
        self._is_closed = True
        self._loop.remove_reader(self._descriptor)
        self.failed.cancel()
        if self._next is not None:
            self._next.cancel()

    def _read(self) -> None:
        self._next = None
        for _ in range(_MAX_ROUND):
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._take(data)
            except Exception as error:
                self.failed.set_exception(error)
                self.close()
                return
        self.look_again()

"""How the server stops: it finishes what it has begun, and says so to whoever comes meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from types import FrameType

import uvicorn

from octavo.serving.context import Serving

POLL_S = 0.05
FLUSH_S = 2  # for the last answers to be written

_log = logging.getLogger("octavo")


class DrainingServer(uvicorn.Server):
    """A first signal lets running and queued requests finish for `limit_s` while new ones get 503
    with Retry-After, on the same port; then, or at a second signal, the server stops."""

    def __init__(self, config: uvicorn.Config, serving: Serving, limit_s: float) -> None:
        config.timeout_graceful_shutdown = FLUSH_S
        super().__init__(config)
        self._serving, self._limit_s = serving, limit_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        self._captured_signals.append(sig)
        if self._loop is not None and not self._serving.is_draining:
            self._serving.drain_for(self._limit_s)
            self._loop.call_soon_threadsafe(self._begin)
        else:
            self.should_exit = self.force_exit = True

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]

    def _begin(self) -> None:
        self._drain = asyncio.create_task(self._finish(), name="drain")

    async def _finish(self) -> None:
        end = time.monotonic() + self._limit_s
        if self._serving.num_running:
            _log.info("stopping when %d requests are done", self._serving.num_running)
        while self._serving.num_running and time.monotonic() < end:
            await asyncio.sleep(POLL_S)
        if self._serving.num_running:
            _log.warning("stopping with %d requests not done", self._serving.num_running)
            await self._serving.client.close()  # their streams end with an error
        self.should_exit = True

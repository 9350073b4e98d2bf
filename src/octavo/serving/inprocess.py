"""The engine in this process behind the server's contract, for work without a network."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

from octavo.engine import AsyncEngine, EngineStats
from octavo.engine.live import Taker
from octavo.engine.messages import Ready, ready
from octavo.engine.options import EngineOptions
from octavo.engine.process import EngineProgress, EngineState
from octavo.engine.types import Delta, Request
from octavo.records import replace


class LocalClient:
    """A context.EngineClient round an AsyncEngine, which it owns: `close` closes it."""

    def __init__(self, engine: AsyncEngine, model_path: str) -> None:
        self.options: EngineOptions = engine.options
        self.state = EngineState("ready")
        self.ready_info: Ready | None = ready(engine.config, engine.options, engine.plan)
        self.num_restarts = 0
        self.pid = os.getpid()
        self.full_for_s: float | None = None  # its caller waits its turn
        self._engine, self._path = engine, model_path

    async def start(self) -> None:
        """It has started already."""

    async def wait_located(self) -> str:
        """The model's path on this machine."""
        return self._path

    async def batches(
        self, request: Request, taker: Taker | None = None
    ) -> AsyncGenerator[list[Delta]]:
        """Deltas of a request; closing the generator aborts it. taker: gets none."""
        async with aclosing(self._engine.stream(request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield [delta]

    def end_sample(self, request_id: str, index: int) -> None:
        """Stop one sample of a request."""
        self._engine.end_sample(request_id, index)

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter."""
        await self._engine.call(lambda engine: engine.adapters.load(name, path))
        self.options = replace(self.options, lora={**self.options.lora, name: path})

    async def unload_adapter(self, name: str) -> None:
        """Forget it."""
        await self._engine.call(lambda engine: engine.adapters.unload(name))
        kept = {n: path for n, path in self.options.lora.items() if n != name}
        self.options = replace(self.options, lora=kept)

    async def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """A snapshot of the engine's counters."""
        return self._engine.stats()

    def progress(self) -> EngineProgress:
        """What runs gets on: a crash would end this process too."""
        stats = self._engine.stats()
        return EngineProgress(stats.num_running + stats.num_waiting, stats.num_steps, 0.0)

    async def close(self) -> None:
        """Stop the engine."""
        self._engine.close()

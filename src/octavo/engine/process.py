"""EngineProcess: the engine in a process of its own, supervised, with AsyncEngine's interface.

The child is spawned, not forked, and dies with this process. When it crashes or hangs, another one
takes its place and goes on with the requests in flight: each is given to it together with the
tokens its reader has seen, so that a stream pauses and then continues as if nothing had happened.
A request that the engine dies of again and again is found (blame.py) and fails alone. An engine
that keeps dying with nobody to blame stays down.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from octavo.engine import messages as m
from octavo.engine.child import Child
from octavo.engine.deadlines import deadline_error
from octavo.engine.gate import Queue
from octavo.engine.heart import Heart
from octavo.engine.inflight import InFlight
from octavo.engine.live import Live, Taker
from octavo.engine.options import EngineOptions
from octavo.engine.stall import StallWatch, cpu_time_s
from octavo.engine.stats import EngineStats
from octavo.engine.supervision import Supervision
from octavo.engine.types import Delta, Request
from octavo.errors import EngineError, OctavoError
from octavo.records import replace

CALM_S = 60.0  # an engine that was ready for so long has not crashed "again"

Phase = Literal["stopped", "starting", "ready", "restarting", "dead"]
_log = logging.getLogger("octavo.engine")


@dataclass(frozen=True)
class EngineState:
    """Where the engine stands; `detail` is for people ("loading weights 43 %")."""

    phase: Phase
    detail: str = ""


@dataclass(frozen=True)
class EngineProgress:
    """num_live: requests in flight. num_steps: of the present engine process. stalled_s: for how
    long there was work and no step has finished; 0 while all is well."""

    num_live: int
    num_steps: int
    stalled_s: float


class EngineProcess:
    """All methods belong to one event loop. `start` first, `close` last."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        factory: str = "octavo.engine.worker:load_engine",
        supervision: Supervision | None = None,
    ) -> None:
        self.options = options
        self.supervision = supervision or Supervision()
        self.state = EngineState("stopped")
        self.model_path: str | None = None
        self.ready_info: m.Ready | None = None
        self.num_restarts = 0
        self.failure: OctavoError | None = None  # why the engine died for good
        self._factory = factory
        self._child: Child | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._work = asyncio.Event()  # set when the engine gets something to do
        self._inflight = InFlight(options, self.supervision, self._send, self._work.set)
        self._stall = StallWatch(self.supervision.hang_timeout_s)
        self._crashes = 0  # in a row
        self._stopped_since: float | None = None  # since when there is no engine to go on with
        self._ready_s = 0.0  # when the present child was ready
        self._stats: dict[int, asyncio.Future[EngineStats]] = {}
        self._loads: dict[int, asyncio.Future[None]] = {}  # of adapters
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._reported: OctavoError | None = None  # what the present child says it dies of

    @property
    def pid(self) -> int:
        """Process id of the engine; 0 while there is none."""
        return self._child.pid if self._child else 0

    @property
    def num_live(self) -> int:
        """Requests in flight."""
        return len(self._inflight)

    async def start(self) -> None:
        """Spawn the engine and return; `wait_ready` waits until it takes requests."""
        self._set_state("starting", "starting the engine")
        self._supervisor = asyncio.create_task(self._supervise(), name="engine-supervisor")

    async def wait_ready(self) -> None:
        """Return when the engine takes requests; raise what kept it from starting."""
        await self._wait(lambda: self.state.phase in ("ready", "dead"))
        if self.state.phase == "dead":
            raise self.failure or EngineError(f"engine: {self.state.detail}")

    async def wait_dead(self) -> None:
        """Return when the engine has died for good."""
        await self._wait(lambda: self.state.phase == "dead")

    async def wait_located(self) -> str:
        """The model's path, as soon as the engine has found or fetched it."""
        await self._wait(lambda: self.model_path is not None or self.state.phase == "dead")
        if self.model_path is None:
            raise self.failure or EngineError(f"engine: {self.state.detail}")
        return self.model_path

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Deltas of a request until all its samples are finished.

        Raises a RequestError if it is refused (QueueFullError says when to come again) or given up,
        EngineError if the engine is not ready or dies for good. Closing the iterator early aborts
        the request before the next step.
        """
        async with aclosing(self.batches(request)) as batches:
            async for deltas in batches:
                for delta in deltas:
                    yield delta

    async def batches(
        self, request: Request, taker: Taker | None = None
    ) -> AsyncGenerator[list[Delta]]:
        """The same, with all deltas at once that have come since the last were taken. taker: see
        `Live.take`."""
        self._check_ready()
        self._check_queue(request)
        live = self._inflight.add(request)
        running = request.params.n
        try:
            while running:
                deltas = await live.take(taker)
                for delta in deltas:
                    if delta.finish_reason is not None:
                        running -= 1
                yield deltas
        finally:
            self._inflight.forget(live)

    async def abort(self, request_id: str) -> None:
        """Stop a request; its stream ends with finish reason "abort". Unknown ids are ignored."""
        self._inflight.abort(request_id)

    def end_sample(self, request_id: str, index: int) -> None:
        """Stop one sample of a request that has begun to answer; it ends with finish reason
        "stop". Unknown ones are ignored."""
        self._inflight.end_sample(request_id, index)

    async def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """A snapshot from between two steps. Raises EngineError if none comes in time."""
        self._check_ready()
        number = next(self._numbers)
        future = self._stats[number] = asyncio.get_running_loop().create_future()
        self._send(m.GetStats(number))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise EngineError(f"engine: no answer within {timeout_s:g} s") from None
        finally:
            del self._stats[number]

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter; an engine that takes this one's place has it too. Raises what kept it
        from loading."""
        await self._load(name, path)
        self.options = replace(self.options, lora={**self.options.lora, name: path})

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raises InvalidParameterError while requests use it."""
        await self._load(name, None)
        kept = {n: path for n, path in self.options.lora.items() if n != name}
        self.options = replace(self.options, lora=kept)

    async def _load(self, name: str, path: str | None) -> None:
        self._check_ready()
        number = next(self._numbers)
        future = self._loads[number] = asyncio.get_running_loop().create_future()
        self._send(m.LoadAdapter(number, name, path))
        try:
            await future
        finally:
            del self._loads[number]

    def progress(self) -> EngineProgress:
        """Whether what runs gets on. Known even when the engine does not answer."""
        now, heart = time.monotonic(), self._heart
        stalled_s = self._stall.stalled_s(now) if self._inflight.num_sent else 0.0
        if self._stopped_since is not None and self._inflight:
            stalled_s = max(stalled_s, now - self._stopped_since)
        return EngineProgress(len(self._inflight), heart.num_steps if heart else 0, stalled_s)

    async def close(self) -> None:
        """Stop the engine and free everything. Streams in flight end with EngineError."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
            self._supervisor = None
        if self._child is not None:
            child, self._child = self._child, None
            await child.stop()
        self._set_state("stopped")
        self._inflight.fail_all(EngineError("engine: shut down"))

    @property
    def _heart(self) -> Heart | None:
        return self._child.heart if self._child else None

    def _check_ready(self) -> None:
        if self.state.phase != "ready":
            raise EngineError(f"engine: not ready ({self.state.phase}: {self.state.detail})")

    def queue(self) -> Queue:
        """What waits for rows and blocks. Known even when the engine does not answer."""
        heart, max_rows = self._heart, self.options.max_num_seqs
        return Queue(0, 0, max_rows) if heart is None else self._inflight.queue(heart, max_rows)

    def _has_queue(self) -> bool:
        return self.queue().num_requests > 0

    @property
    def full_for_s(self) -> float | None:
        """Seconds after which the full queue may have room; None while it has."""
        queue, gate = self.queue(), self._inflight.gate
        if not gate.is_full(queue):
            return None
        return gate.retry_after_s(time.monotonic(), queue, promise=False)

    def _check_queue(self, request: Request) -> None:
        now, gate, size = time.monotonic(), self._inflight.gate, len(request.prompt_ids)
        gate.check(now, self.queue(), request.tenant, size)
        if request.ttft_deadline_s is not None:
            gate.check_deadline(now, request.tenant, size, request.ttft_deadline_s)
        for moment, is_first in ((request.ttft_deadline_s, True), (request.deadline_s, False)):
            if moment is not None and moment <= now:
                raise deadline_error(request, is_first, queued=True)

    def _send(self, command: m.Command) -> None:
        if self._child is not None:
            self._child.send(command)

    async def _wait(self, reached: Callable[[], bool]) -> None:
        while not reached():
            await self._changed.wait()

    def _set_state(self, phase: Phase, detail: str = "") -> None:
        self.state = EngineState(phase, detail)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # What the engine says.

    def _handle(self, event: m.Event) -> None:
        match event:
            case m.Deltas(deltas):
                self._inflight.deliver(deltas, self._has_queue)
            case m.Stats(number, stats):
                future = self._stats.get(number)
                if future is not None and not future.done():
                    future.set_result(msgspec.convert(stats, EngineStats))
            case m.AdapterDone(number, fault):
                self._adapter_done(number, fault)
            case m.Refused(request_id, kind, param, message):
                error = m.rebuild_error(kind, param, message)
                self._inflight.refused(request_id, error)
            case m.Progress(text):
                self._set_state(self.state.phase, text)
            case m.Located(path):
                self.model_path = path
                self._set_state(self.state.phase, self.state.detail)
            case m.Ready():
                self.ready_info = event
                self._ready_s = time.monotonic()
                self._stopped_since = None
                self._set_state("ready")
                self._inflight.engine_ready()
            case m.Failed(kind, message):
                self._reported = m.rebuild_error(kind, None, message)

    def _adapter_done(self, number: int, fault: tuple[str, str | None, str] | None) -> None:
        future = self._loads.get(number)
        if future is None or future.done():
            return
        if fault is None:
            future.set_result(None)
        else:
            future.set_exception(m.rebuild_error(*fault))

    # How the engine ends, and starts again.

    async def _supervise(self) -> None:
        try:
            while await self._live_once():
                pass
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a bug here must not leave streams waiting for ever
            _log.critical("the engine's supervisor failed: %s", error, exc_info=error)
            self._die(EngineError(f"engine: the supervisor failed: {error}"))

    async def _live_once(self) -> bool:
        """One life of the engine. False if there is to be no other."""
        self._ready_s, self._reported = 0.0, None
        child = self._child = Child()
        await child.spawn(self.options, self._factory)
        watch = asyncio.create_task(self._watch(child), name="engine-watch")
        try:
            status = await child.run(self._handle)
        finally:
            watch.cancel()
        child.drain(self._handle)
        died = self._reported or EngineError(f"engine: the process ended with status {status}")
        guilty = self._inflight.engine_died(child.heart)
        self._child = None
        await child.stop()
        return await self._bury(died, guilty)

    async def _bury(self, died: OctavoError, guilty: Live | None) -> bool:
        """Decide what a death means. False if it was the last. A request that is found to be the
        reason fails, and the crashes were not the engine's."""
        now = time.monotonic()
        self._stall.look(now, False, 0, None)
        calm = self._ready_s and now - self._ready_s >= CALM_S
        self._crashes = 1 if calm else self._crashes + 1
        if guilty is not None:
            self._inflight.give_up(guilty, died)
            self._crashes = 0
        waiting: list[asyncio.Future[Any]] = [*self._stats.values(), *self._loads.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(died)
        if self.ready_info is None or self._crashes > self.supervision.max_restarts:
            self._die(died)
            return False
        self.num_restarts += 1
        self._stopped_since = self._stopped_since or now
        _log.error("%s; starting another one", died)
        self._set_state("restarting", str(died))
        await asyncio.sleep(0.05 * 2**self._crashes)
        return True

    def _die(self, error: OctavoError) -> None:
        self.failure = error
        self._set_state("dead", str(error))
        self._inflight.fail_all(error)

    async def _watch(self, child: Child) -> None:
        """Kill the engine if it hangs. Costs nothing while there is no work."""
        limit_s = self.supervision.hang_timeout_s
        while True:
            if not self._inflight.num_sent:
                self._stall.look(time.monotonic(), False, 0, None)
                self._work.clear()
                await self._work.wait()
            cpu_s = cpu_time_s(child.pid)
            if self._stall.look(time.monotonic(), True, child.heart.beats, cpu_s):
                stalled_s = self._stall.stalled_s(time.monotonic())
                self._reported = EngineError(f"engine: no step finished for {stalled_s:.1f} s")
                child.kill()
                return
            await asyncio.sleep(min(1.0, limit_s / 10))

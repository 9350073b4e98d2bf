"""EngineProcess: the engine in a process of its own, with AsyncEngine's interface.

The child is spawned, not forked, and dies with this process. When it crashes, requests that have
shown nothing yet are given to its successor; the others end with EngineError. After
MAX_RESTARTS crashes in a row it stays down.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from octavo.engine import messages as m
from octavo.engine.child import Child
from octavo.engine.options import EngineOptions
from octavo.engine.stats import EngineStats
from octavo.engine.types import Delta, Request
from octavo.errors import EngineError, OctavoError, RequestError

MAX_RESTARTS = 3  # crashes in a row, each within CALM_S of the start before it
CALM_S = 60.0

Phase = Literal["stopped", "starting", "ready", "restarting", "dead"]


@dataclass(frozen=True)
class EngineState:
    """Where the engine stands; `detail` is for people ("loading weights 43 %")."""

    phase: Phase
    detail: str = ""


@dataclass
class _Live:
    """A request in flight. `shown` once any delta reached the reader; `tries` counts children."""

    request: Request
    arrivals: asyncio.Queue[list[Delta] | OctavoError] = field(default_factory=asyncio.Queue)
    shown: bool = False
    tries: int = 1


class EngineProcess:
    """All methods belong to one event loop. `start` first, `close` last."""

    def __init__(
        self, options: EngineOptions, *, factory: str = "octavo.engine.worker:load_engine"
    ) -> None:
        self.options = options
        self.state = EngineState("stopped")
        self.model_path: str | None = None
        self.ready_info: m.Ready | None = None
        self.num_restarts = 0
        self._factory = factory
        self._child: Child | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._live: dict[str, _Live] = {}
        self._stats: dict[int, asyncio.Future[EngineStats]] = {}
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self.failure: OctavoError | None = None  # why the engine died for good
        self._reported: OctavoError | None = None  # what the present child says it dies of

    @property
    def pid(self) -> int:
        """Process id of the engine; 0 while there is none."""
        return self._child.pid if self._child else 0

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

        Raises a RequestError if it is refused, EngineError if the engine dies on the way. Closing
        the iterator early aborts the request before the next step.
        """
        if self.state.phase != "ready":
            raise EngineError(f"engine: not ready ({self.state.phase}: {self.state.detail})")
        if request.request_id in self._live:
            raise RequestError(f"engine: a request {request.request_id!r} is running already")
        live = self._live[request.request_id] = _Live(request)
        self._send(m.Add(request))
        running = set(range(request.params.n))
        try:
            while running:
                arrival = await live.arrivals.get()
                if isinstance(arrival, OctavoError):
                    running.clear()
                    raise arrival
                for delta in arrival:
                    if delta.finish_reason is not None:
                        running.discard(delta.index)
                    yield delta
        finally:
            del self._live[request.request_id]
            if running:
                self._send(m.Abort(request.request_id))

    async def abort(self, request_id: str) -> None:
        """Stop a request; its stream ends with finish reason "abort". Unknown ids are ignored."""
        self._send(m.Abort(request_id))

    async def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """A snapshot from between two steps. Raises EngineError if none comes in time."""
        if self.state.phase != "ready":
            raise EngineError(f"engine: not ready ({self.state.phase}: {self.state.detail})")
        number = next(self._numbers)
        future = self._stats[number] = asyncio.get_running_loop().create_future()
        self._send(m.GetStats(number))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise EngineError(f"engine: no answer within {timeout_s:g} s") from None
        finally:
            del self._stats[number]

    async def close(self) -> None:
        """Stop the engine and free everything. Streams in flight end with EngineError."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
            self._supervisor = None
        if self._child is not None:
            await self._child.stop()
            self._child = None
        self._set_state("stopped")
        self._fail_live(EngineError("engine: shut down"))

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

    async def _supervise(self) -> None:
        crashes = 0
        while True:
            began = time.monotonic()
            self._child = Child()
            await self._child.spawn(self.options, self._factory)
            status = await self._child.run(self._handle)
            self._child.drain(self._handle)
            await self._child.stop()
            self._child = None
            crashes = crashes + 1 if time.monotonic() - began < CALM_S else 1
            died = self._reported or EngineError(f"engine: the process ended with status {status}")
            for future in self._stats.values():
                if not future.done():
                    future.set_exception(died)
            if self.ready_info is None or crashes > MAX_RESTARTS:
                self.failure = died
                self._set_state("dead", str(died))
                self._fail_live(died)
                return
            self._reported = None
            self.num_restarts += 1
            self._set_state("restarting", str(died))
            self._forget_shown(died)
            await asyncio.sleep(0.1 * 2**crashes)

    def _handle(self, event: m.Event) -> None:
        match event:
            case m.Deltas(deltas):
                self._deliver(deltas)
            case m.Stats(number, stats):
                future = self._stats.get(number)
                if future is not None and not future.done():
                    future.set_result(msgspec.convert(stats, EngineStats))
            case m.Refused(request_id, kind, param, message):
                live = self._live.get(request_id)
                if live is not None:
                    live.arrivals.put_nowait(m.rebuild_error(kind, param, message))
            case m.Progress(text):
                self._set_state(self.state.phase, text)
            case m.Located(path):
                self.model_path = path
                self._set_state(self.state.phase, self.state.detail)
            case m.Ready():
                self.ready_info = event
                self._set_state("ready")
                for live in self._live.values():
                    self._send(m.Add(live.request))
            case m.Failed(kind, message):
                self._reported = m.rebuild_error(kind, None, message)

    def _deliver(self, deltas: list[Delta]) -> None:
        """Hand each request its part of a step, in order."""
        grouped: dict[str, list[Delta]] = {}
        for delta in deltas:
            grouped.setdefault(delta.request_id, []).append(delta)
        for request_id, own in grouped.items():
            live = self._live.get(request_id)
            if live is not None:
                live.shown = True
                live.arrivals.put_nowait(own)

    def _forget_shown(self, died: OctavoError) -> None:
        """End the streams a new engine cannot continue; the others wait for it, once."""
        for live in self._live.values():
            if live.shown or live.tries > 1:
                live.arrivals.put_nowait(died)
            live.tries += 1

    def _fail_live(self, error: OctavoError) -> None:
        for live in self._live.values():
            live.arrivals.put_nowait(error)

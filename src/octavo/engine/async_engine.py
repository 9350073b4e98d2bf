"""The engine in a background thread, for asyncio programs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from octavo.engine.engine import Engine
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan
from octavo.engine.stats import EngineStats
from octavo.engine.types import Delta, Request
from octavo.errors import EngineError, OctavoError, QueueFullError
from octavo.models.config import ModelConfig
from octavo.tokenizer.base import Tokenizer
from octavo.weights.cache import Progress

_log = logging.getLogger("octavo.engine")
Item = Delta | Exception
Command = Callable[[Engine], None]


class _Stream:
    """One request's way back to the event loop that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.items: asyncio.Queue[Item] = asyncio.Queue()
        self.num_live = 0


class AsyncEngine:
    """Takes an Engine over and drives it in one thread. All methods may be called from any thread;
    `stream` from a running event loop. Without work the thread sleeps on a condition."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.config: ModelConfig = engine.config
        self.tokenizer: Tokenizer | None = engine.tokenizer
        self.options: EngineOptions = engine.options
        self.plan: EnginePlan = engine.plan
        self._wake = threading.Condition()
        self._commands: list[Command] = []
        self._closing = False
        self._ended = False  # the thread takes no more commands
        self._fault: BaseException | None = None
        self._streams: dict[str, _Stream] = {}  # the thread's own
        self._stats = engine.stats()
        self._num_queued = 0  # requests in _commands
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_options(
        cls,
        options: EngineOptions,
        progress: Progress | None = None,
        report: Callable[[EnginePlan], None] | None = None,
    ) -> Self:
        """See `Engine.from_options`; loading happens in the calling thread."""
        return cls(Engine.from_options(options, progress, report))

    def check(self, request: Request) -> None:
        """Raise a RequestError if the request can never be served."""
        self._engine.check(request)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Deltas of one request until every sample is finished. Raises RequestError subclasses
        before the first one, EngineError if the engine dies. Closing the generator, or cancelling
        the task that reads it, aborts the request within one step."""
        self.check(request)
        stream = _Stream(asyncio.get_running_loop())
        stream.num_live = request.params.n
        self._enqueue(lambda engine: self._add(engine, request, stream))
        live, accepted = request.params.n, True
        try:
            while live:
                item = await stream.items.get()
                if isinstance(item, Exception):
                    accepted = False
                    raise item
                live -= item.finish_reason is not None
                yield item
        finally:
            if live and accepted:
                self._send(lambda engine: self._drop(engine, request.request_id, stream))

    def abort(self, request_id: str) -> None:
        """End a request; its stream gets a last delta with finish_reason "abort"."""
        self._send(lambda engine: engine.abort(request_id))

    def end_sample(self, request_id: str, index: int) -> None:
        """End one sample; see `Engine.end_sample`."""
        self._send(lambda engine: engine.end_sample(request_id, index))

    async def call(self, command: Callable[[Engine], object]) -> object:
        """Run a function on the engine between two steps and return its result."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()

        def run(engine: Engine) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, answer, command(engine), None)
            except Exception as error:
                loop.call_soon_threadsafe(_resolve, answer, None, error)

        if not self._send(run):
            raise self._dead()
        return await answer

    def stats(self) -> EngineStats:
        """The counters after the latest step."""
        return self._stats

    @property
    def is_alive(self) -> bool:
        """Whether the engine still takes requests."""
        return not (self._ended or self._closing)

    def close(self, timeout_s: float | None = None) -> None:
        """Abort what runs, stop the thread and free the model. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _dead(self) -> EngineError:
        why = f"failed: {self._fault}" if self._fault else "closed"
        return EngineError(f"engine: {why}; it takes no more requests")

    def _enqueue(self, command: Command) -> None:
        """Send a new request, unless too many wait for the thread already."""
        with self._wake:
            if self._ended or self._closing:
                raise self._dead()
            waiting = self._num_queued + self._stats.num_waiting
            if waiting >= self.options.max_queue:
                raise QueueFullError(f"engine: {waiting} requests are waiting already; retry later")
            self._num_queued += 1
            self._commands.append(command)
            self._wake.notify()

    def _send(self, command: Command) -> bool:
        """False if the thread has ended, and the command will never run."""
        with self._wake:
            if self._ended:
                return False
            self._commands.append(command)
            self._wake.notify()
            return True

    # From here on: in the engine's thread.

    def _run(self) -> None:
        engine = self._engine
        try:
            while self._take_commands():
                if engine.has_work():
                    self._deliver(engine.step())
        except BaseException as error:
            self._fault = error
            _log.critical("the engine's thread died: %s", error, exc_info=error)
        finally:
            self._shut_down()

    def _take_commands(self) -> bool:
        """Wait for work and run commands; False when it is time to end."""
        engine = self._engine
        with self._wake:
            while not (self._commands or engine.has_work() or self._closing):
                self._stats = engine.stats()
                self._wake.wait()
            commands, self._commands = self._commands, []
            self._num_queued = 0
            if self._closing:
                return False
        for command in commands:
            command(engine)
        if commands:
            self._stats = engine.stats()
        return True

    def _add(self, engine: Engine, request: Request, stream: _Stream) -> None:
        try:
            engine.add_request(request)
        except OctavoError as error:
            _post(stream.loop, [(stream, error)])
        else:
            self._streams[request.request_id] = stream

    def _drop(self, engine: Engine, request_id: str, stream: _Stream) -> None:
        """A reader went away. Its id may belong to another stream by now."""
        if self._streams.get(request_id) is stream:
            del self._streams[request_id]
            engine.abort(request_id)

    def _deliver(self, deltas: list[Delta]) -> None:
        self._stats = self._engine.stats()
        posts: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, Item]]] = defaultdict(list)
        for delta in deltas:
            if (stream := self._streams.get(delta.request_id)) is not None:
                posts[stream.loop].append((stream, delta))
                stream.num_live -= delta.finish_reason is not None
                if stream.num_live == 0:
                    del self._streams[delta.request_id]
        for loop, batch in posts.items():
            _post(loop, batch)

    def _shut_down(self) -> None:
        why = f"failed: {self._fault}" if self._fault else "shut down"
        with self._wake:
            commands, self._commands = self._commands, []
            self._ended = True
        for command in commands:  # a closed engine refuses them, which tells their streams
            self._engine.close()
            command(self._engine)
        for stream in self._streams.values():
            _post(stream.loop, [(stream, EngineError(f"engine: {why}"))])
        self._streams.clear()
        self._engine.close()


def _post(loop: asyncio.AbstractEventLoop, batch: list[tuple[_Stream, Item]]) -> None:
    """One wake-up of an event loop for all it gets from a step."""
    try:
        loop.call_soon_threadsafe(_put, batch)
    except RuntimeError:  # that loop is closed: nobody waits any more
        _log.debug("deltas for a closed event loop dropped")


def _put(batch: list[tuple[_Stream, Item]]) -> None:
    for stream, item in batch:
        stream.items.put_nowait(item)


def _resolve(answer: asyncio.Future[object], value: object, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)

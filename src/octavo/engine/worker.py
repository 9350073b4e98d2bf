"""The engine process: `python -m octavo.engine ADDRESS`, started by engine/process.py.

One thread runs everything: commands are read between steps, and while there is no work the
process sleeps in the socket. A second thread sleeps on standard input, whose end means that the
parent is gone.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from octavo import logs
from octavo.engine import messages as m
from octavo.engine.heart import Doing, Heart
from octavo.engine.options import EngineOptions
from octavo.engine.types import Request
from octavo.errors import OctavoError
from octavo.records import replace

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.planning import EnginePlan
    from octavo.engine.sample import Sample
    from octavo.scheduler import Schedule

Progress = Callable[[int, int, str], None]
"""progress(done_bytes, total_bytes, label)"""
Factory = Callable[[EngineOptions, Progress, Callable[[str], None]], "Engine"]

_PR_SET_PDEATHSIG = 1
_MAX_ROUND = 256  # commands between two steps

_log = logging.getLogger("octavo.engine")


def main(address: str) -> int:
    """Serve one engine until told to stop. Returns the exit status."""
    logs.configure_child()
    _leave_signals_to_the_parent()
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=m.Start)
    _die_with_parent()
    link = Link(address)
    try:
        link.send(m.Progress("starting the engine"))
        worker = Worker(_make_engine(start, link), link, Heart(start.heart))
        worker.serve()
    except Exception as error:
        if not isinstance(error, OctavoError):
            _log.critical("the engine process fails", exc_info=error)
        kind, _, message = m.describe_error(error)
        link.send(m.Failed(kind, message))
        return 1
    finally:
        link.close()
    return 0


class Link:
    """The child's end of the pair: events out, commands in."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.LINGER, 2000)
        self._socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(m.Command)

    def send(self, event: m.Event) -> None:
        """Queue an event; never blocks."""
        self._socket.send(self._encoder.encode(event))

    def receive(self, wait: bool) -> m.Command | None:
        """The next command; None if there is none and `wait` is false."""
        try:
            data = self._socket.recv(0 if wait else zmq.NOBLOCK)
        except zmq.Again:
            return None
        command: m.Command = self._decoder.decode(data)
        return command

    def close(self) -> None:
        """Send what is queued (two seconds at most) and close."""
        self._socket.close()
        self._context.term()


class Worker:
    """The loop round one engine. `heart` shows the parent where it is."""

    def __init__(self, engine: Engine, link: Link, heart: Heart) -> None:
        self._engine, self._link, self._heart = engine, link, heart
        self._numbers: dict[str, int] = {}
        self._steps = self._taken = 0
        engine.before_step = self._begin_step

    def serve(self) -> None:
        """Step while there is work, sleep while there is none, return on Shutdown."""
        engine, link = self._engine, self._link
        gc.collect()
        gc.freeze()  # modules and tokenizer stay; to look through them would hold up a step
        link.send(m.ready(engine.config, engine.options, engine.plan))
        while self._take_commands():
            if engine.has_work():
                self._step()
        engine.close()

    def _step(self) -> None:
        if self._engine.grammars:
            self._heart.begin(Doing.TAKING, self._compiling())
        deltas = self._engine.step()
        if deltas:
            self._link.send(m.Deltas(deltas))
            for delta in deltas:
                if delta.metrics is not None:  # the request's last
                    self._numbers.pop(delta.request_id, None)
        if deltas or self._heart.doing is Doing.STEPPING:  # else nothing could be scheduled
            self._beat()

    def _begin_step(self, plan: Schedule[Sample]) -> None:
        self._steps += 1
        members = [*plan.decodes, *(chunk.sequence for chunk in plan.chunks)]
        numbers = self._numbers
        at = [numbers[sample.request_id] for sample in members]
        self._heart.begin(Doing.STEPPING, at + self._compiling())

    def _compiling(self) -> list[int]:
        """Requests whose grammars are being compiled beside the steps."""
        return [self._numbers[name] for name in self._engine.grammars.request_ids]

    def _beat(self) -> None:
        load = self._engine.load()
        self._heart.rest()
        self._heart.beat(*load, self._steps, self._taken)

    def _take_commands(self) -> bool:
        """Handle the commands that came; wait for one while idle. False after Shutdown."""
        taken = False
        for _ in range(_MAX_ROUND):
            command = self._link.receive(wait=not (taken or self._engine.has_work()))
            if command is None:
                break
            if isinstance(command, m.Shutdown):
                return False
            self._handle(command)
            taken = True
        if taken:
            self._beat()
        return True

    def _handle(self, command: m.Command) -> None:
        match command:
            case m.Add(number, request):
                self._heart.begin(Doing.TAKING, [number])
                self._add(number, request)
                self._taken += 1
            case m.Abort(request_id):
                self._engine.abort(request_id)
            case m.EndSample(request_id, index):
                self._engine.end_sample(request_id, index)
            case m.LoadAdapter(number, name, path):
                self._link.send(m.AdapterDone(number, self._load_adapter(name, path)))
            case m.GetStats(number):
                self._link.send(m.Stats(number, asdict(self._engine.stats())))

    def _load_adapter(self, name: str, path: str | None) -> tuple[str, str | None, str] | None:
        adapters = self._engine.adapters
        try:
            if path is None:
                adapters.unload(name)
            else:
                adapters.load(name, path)
        except Exception as error:
            if not isinstance(error, OctavoError):
                _log.error("unexpected error", exc_info=error)
            return m.describe_error(error)
        return None

    def _add(self, number: int, request: Request) -> None:
        self._numbers[request.request_id] = number
        try:
            self._engine.add_request(request, admitted=True)
        except Exception as error:
            if not isinstance(error, OctavoError):
                _log.error("unexpected error", exc_info=error)
            self._numbers.pop(request.request_id, None)
            self._link.send(m.Refused(request.request_id, *m.describe_error(error)))


def load_engine(
    options: EngineOptions, progress: Progress, located: Callable[[str], None]
) -> Engine:
    """The usual factory: fetch the model, say where it is, load it."""
    from octavo.engine.engine import Engine
    from octavo.weights import resolve

    path = str(resolve(options.model, progress))
    located(path)

    def report(plan: EnginePlan) -> None:
        _log.info("%s", plan)
        progress(0, 0, "loading the weights")

    engine = Engine.from_options(replace(options, model=path), progress, report)
    if engine.tokenizer is not None:
        engine.grammars.prepare()
    return engine


def _make_engine(start: m.Start, link: Link) -> Engine:
    shown = [""]

    def progress(done: int, total: int, label: str) -> None:
        text = f"{label} {100 * done // total} %" if total else label
        if text != shown[0]:
            shown[0] = text
            link.send(m.Progress(text))

    options = msgspec.convert(start.options, EngineOptions)
    factory: Factory = _find(start.factory)
    return factory(options, progress, lambda path: link.send(m.Located(path)))


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C and a service manager's TERM reach the whole group; the parent decides what they
    mean and lets running work finish."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _die_with_parent() -> None:
    """Exit at once when the parent is gone, even by SIGKILL or in the middle of a step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()

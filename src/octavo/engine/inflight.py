"""The requests in flight: which of them the engine process has, and which wait for it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable

from octavo.engine import messages as m
from octavo.engine.blame import Blame
from octavo.engine.deadlines import deadline_error
from octavo.engine.gate import Gate, Queue
from octavo.engine.heart import Doing, Heart
from octavo.engine.live import Live
from octavo.engine.options import EngineOptions
from octavo.engine.supervision import Supervision
from octavo.engine.types import Delta, Request
from octavo.errors import CrashingRequestError, OctavoError, RequestError

_GRACE_S = 0.25  # for the engine to notice a missed deadline itself


def _never() -> bool:
    return False


class InFlight:
    """Every request whose reader is still there, whatever happens to engines.

    A request is held while there is no engine or another request is on trial, sent while the
    engine has it, leaving while it has been taken back and its last deltas are on their way.
    send: queues a command for the engine. worked: called when it has got something to do.
    """

    def __init__(
        self,
        options: EngineOptions,
        supervision: Supervision,
        send: Callable[[m.Command], None],
        worked: Callable[[], None],
    ) -> None:
        self._supervision, self._send, self._worked = supervision, send, worked
        self._live: dict[str, Live] = {}
        self._held: dict[str, Live] = {}
        self._sent: dict[int, Live] = {}  # by number
        self._leaving: set[str] = set()
        self._blame = Blame(supervision.max_request_crashes)
        self._numbers = itertools.count()
        self._open = False  # whether an engine takes requests
        self._others_wait: Callable[[], bool] = _never
        self._num_added = 0  # by this engine
        self._untaken: deque[int] = deque()  # prompt tokens of what it may not have seen yet
        self._untaken_tokens = 0
        self.gate = Gate(options.max_queue, options.max_queued_tokens, options.tenant_weights)

    def __len__(self) -> int:
        return len(self._live)

    @property
    def num_sent(self) -> int:
        """Requests the engine has and has not finished."""
        return len(self._sent)

    def queue(self, heart: Heart, max_rows: int) -> Queue:
        """What waits: in the engine, on the way to it, and for it."""
        while len(self._untaken) > self._num_added - heart.taken:
            self._untaken_tokens -= self._untaken.popleft()
        held = self._held.values()
        return Queue(
            heart.num_waiting + len(self._untaken) + len(held),
            heart.num_waiting_tokens + self._untaken_tokens + sum(live.num_prompt for live in held),
            max(0, max_rows - heart.num_running),
        )

    def add(self, request: Request) -> Live:
        """A new request, given to the engine as soon as it may have it."""
        name = request.request_id
        if name in self._live:
            raise RequestError(f"engine: a request {name!r} is running already")
        self.gate.entered(request.tenant, len(request.prompt_ids))
        live = Live(request, next(self._numbers), self._supervision.max_stream_backlog)
        self._live[name] = self._held[name] = live
        self._set_timers(live)
        self._submit(live)
        return live

    def abort(self, name: str) -> None:
        """End a request with finish reason "abort"; unknown names are ignored."""
        if (live := self._live.get(name)) is not None:
            self._recall(live)
            live.abort()

    def end_sample(self, name: str, index: int) -> None:
        """End one sample of a request that has begun to answer; unknown names are ignored."""
        if (live := self._live.get(name)) is not None and live.started:
            live.end(index)
            if live.number in self._sent:
                self._send(m.EndSample(name, index))

    def forget(self, live: Live) -> None:
        """Its reader is done with it, or gone."""
        name = live.request.request_id
        del self._live[name]
        self._held.pop(name, None)
        for timer in live.timers:
            timer.cancel()
        self._leave_queue(live)
        self._recall(live)
        self._blame.forget(name)
        self._submit_held()

    def fail_all(self, error: OctavoError) -> None:
        """No engine will ever go on."""
        for live in self._live.values():
            live.fail(error)

    def deliver(self, deltas: list[Delta], others_wait: Callable[[], bool] = _never) -> None:
        """What one step added: each request gets its part, in order. others_wait: says whether
        there is a queue, so that what leaves it tells how fast it drains."""
        self._others_wait = others_wait
        if self._blame.on_trial is None and not self._leaving:
            deltas = [delta for delta in deltas if not self._passes(delta)]
        grouped: dict[str, list[Delta]] = {}
        for delta in deltas:
            grouped.setdefault(delta.request_id, []).append(delta)
        for name, own in grouped.items():
            ended = own[-1].metrics is not None
            if (live := self._live.get(name)) is not None:
                self._deliver_to(live, own, ended)
            if ended:
                self._left(name)

    def refused(self, name: str, error: OctavoError) -> None:
        """The engine did not take a request, or dropped it."""
        live = self._live.get(name)
        if live is not None and self._sent.pop(live.number, None) is not None:
            live.fail(error)
        self._left(name)

    def engine_ready(self) -> None:
        """There is an engine: it gets what waits for it."""
        self._open = True
        self._submit_held()

    def engine_died(self, heart: Heart) -> Live | None:
        """There is none any more. All requests wait for the next one; returns the one that is found
        to kill engines, if any."""
        found = [] if heart.doing is Doing.NOTHING else heart.members
        members = [
            self._sent[number].request.request_id for number in found if number in self._sent
        ]
        self._open = False
        self._sent.clear()
        self._leaving.clear()
        self._untaken.clear()
        self._untaken_tokens = 0
        self._num_added = 0
        self._held = {name: live for name, live in self._live.items() if not live.over}
        guilty = self._blame.crashed(members)
        return None if guilty is None else self._held.pop(guilty, None)

    def give_up(self, live: Live, died: OctavoError) -> None:
        """Fail the request that kills engines."""
        times = self._supervision.max_request_crashes
        message = (
            f"engine: crashed or hung {times} times while it ran this request, which is given up"
        )
        live.fail(CrashingRequestError(f"{message} ({died})"))

    def _passes(self, delta: Delta) -> bool:
        live = self._live.get(delta.request_id)
        return live is not None and live.passes(delta)

    def _deliver_to(self, live: Live, deltas: list[Delta], ended: bool) -> None:
        name = live.request.request_id
        if name in self._leaving:  # its abort is not the reader's business
            deltas = [delta for delta in deltas if delta.finish_reason != "abort"]
        if deltas:
            self._leave_queue(live)
            live.deliver(deltas)
        if live.over:
            if ended:
                self._sent.pop(live.number, None)
            self._recall(live)
            self._blame.forget(name)
            self._submit_held()
        elif self._blame.saw(name, sum(len(delta.token_ids) for delta in deltas)):
            self._recall(live)
            self._held[name] = live

    def _set_timers(self, live: Live) -> None:
        """The engine ends what misses a deadline; should it hang or be gone, this does."""
        request, now, loop = live.request, time.monotonic(), asyncio.get_running_loop()
        moments = ((request.ttft_deadline_s, True), (request.deadline_s, False))
        live.timers = [
            loop.call_later(moment - now + _GRACE_S, self._overdue, live, is_first)
            for moment, is_first in moments
            if moment is not None
        ]

    def _overdue(self, live: Live, is_first: bool) -> None:
        if not (live.over or (is_first and live.started)):
            queued = live.number not in self._sent
            live.fail(deadline_error(live.request, is_first, queued))
            self._held.pop(live.request.request_id, None)
            self._recall(live)

    def _submit(self, live: Live) -> None:
        name = live.request.request_id
        if self._open and name not in self._leaving and self._blame.may_run(name):
            self._held.pop(name, None)
            self._sent[live.number] = live
            self._num_added += 1
            self._untaken.append(live.num_prompt)
            self._untaken_tokens += live.num_prompt
            self._send(m.Add(live.number, live.resumed()))
            self._worked()

    def _submit_held(self) -> None:
        if self._leaving and self._blame.on_trial:  # one on trial meets nobody
            return
        for live in list(self._held.values()):
            self._submit(live)

    def _leave_queue(self, live: Live) -> None:
        """It has shown something, or is over."""
        if live.queued:
            live.queued = False
            self.gate.started(live.request.tenant, live.num_prompt)
            self.gate.rate.left(time.monotonic(), live.num_prompt, self._others_wait())

    def _recall(self, live: Live) -> None:
        """Take a request back from the engine, if it has it."""
        if self._sent.pop(live.number, None) is not None:
            self._leaving.add(live.request.request_id)
            self._send(m.Abort(live.request.request_id))

    def _left(self, name: str) -> None:
        """The engine has nothing more to say about a request."""
        if name in self._leaving:
            self._leaving.discard(name)
            self._submit_held()

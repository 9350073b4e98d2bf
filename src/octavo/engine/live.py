"""A request in flight between the API process and whichever engine process runs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from octavo.engine.types import Delta, Request, Resumption
from octavo.errors import SlowReaderError
from octavo.records import replace

_MERGE_AFTER = 16  # deltas: a reader further behind gets them joined
_TOKEN_BYTES = 40  # about what a token id takes in a list
_LOGPROB_BYTES = 300  # and a candidate with its text

_ADDED = ("request_id", "index", "text", "token_ids", "logprobs")
_OTHERS = tuple(name for name in Delta.__struct_fields__ if name not in _ADDED)

Taker = Callable[[Delta], bool]
"""Shows a delta at once, with nobody waking for it; False, with nothing done, where it cannot."""


class Live:
    """The deltas on their way to one reader, and what is needed to give the request to another
    engine.

    number: what the engine process calls it in its Heart. What waits for the reader is joined if it
    becomes much, and dropped with SlowReaderError if it becomes more than max_backlog bytes.
    """

    def __init__(self, request: Request, number: int, max_backlog: int) -> None:
        self.request, self.number = request, number
        n = request.params.n
        self._outputs: list[list[int]] = [[] for _ in range(n)]
        self._ended = [False] * n
        self._num_cached = 0
        self._first_token_s: float | None = None
        self.timers: list[asyncio.TimerHandle] = []  # of whoever watches its deadlines
        self.queued = True  # for whoever counts those that have shown nothing
        self._max_backlog = max_backlog
        self._backlog = 0
        self._waiting: list[Delta] = []
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None  # that waits
        self._taker: Taker | None = None  # the reader's, while it waits

    @property
    def num_prompt(self) -> int:
        """Prompt tokens."""
        return len(self.request.prompt_ids)

    @property
    def started(self) -> bool:
        """Whether anything has been shown."""
        return self._first_token_s is not None

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self._error is not None or all(self._ended)

    def resumed(self) -> Request:
        """The request for another engine: what it has shown so far goes with it."""
        if not self.started:
            return self.request
        return replace(
            self.request,
            resumption=Resumption(
                [list(ids) for ids in self._outputs],
                list(self._ended),
                self._num_cached,
                self._first_token_s,
                self._first_token_s,
            ),
        )

    def passes(self, delta: Delta) -> bool:
        """Whether a delta went past the waiting reader to its taker. Only plain ones do: those that
        open, end or explain something are for `deliver`, as is all that comes until the reader has
        seen those."""
        taker = self._taker
        if (
            taker is None
            or delta.finish_reason is not None
            or delta.metrics is not None
            or delta.num_cached_tokens is not None
            or delta.prompt_logprobs is not None
        ):
            return False
        try:
            if not taker(delta):
                self._taker = None
                return False
        except Exception as error:  # the reader's business, and nobody else's
            self.fail(error)
            return True
        self._outputs[delta.index] += delta.token_ids
        return True

    def deliver(self, deltas: list[Delta]) -> None:
        """What one step added; nothing after the end, of the whole or of a sample."""
        deltas = [delta for delta in deltas if not self._ended[delta.index]]
        if self.over or not deltas:
            return
        if not self.started:
            self._first_token_s = time.monotonic()
            self._num_cached = deltas[0].num_cached_tokens or 0
        for delta in deltas:
            self._outputs[delta.index] += delta.token_ids
            self._ended[delta.index] |= delta.finish_reason is not None
            self._backlog += _size(delta)
        self._waiting += deltas
        if self._backlog > self._max_backlog:
            self.fail(
                SlowReaderError(
                    f"engine: the reader of {self.request.request_id} is more than "
                    f"{self._max_backlog:,} bytes behind; its request was aborted"
                )
            )
        elif len(self._waiting) > _MERGE_AFTER:
            self._waiting = _joined(self._waiting)
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the stream with an error, now; what was not read is dropped."""
        if not self.over:
            self._error = error
            self._waiting.clear()
            self._wake()

    def abort(self) -> None:
        """End what has not ended, with finish reason "abort"."""
        open_samples = [i for i, ended in enumerate(self._ended) if not ended]
        self.deliver(
            [Delta(self.request.request_id, i, "", [], None, "abort") for i in open_samples]
        )

    def end(self, index: int) -> None:
        """End one sample, whatever an engine may still say of it."""
        self.deliver([Delta(self.request.request_id, index, "", [], None, "stop")])

    async def take(self, taker: Taker | None = None) -> list[Delta]:
        """Deltas since the last call; waits for some. Raises what `fail` was given. taker: may have
        plain deltas that come meanwhile, of an answer with one sample."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._reader, self._taker = asyncio.get_running_loop().create_future(), taker
            try:
                await self._reader
            finally:
                self._reader = self._taker = None
        deltas, self._waiting, self._backlog = self._waiting, [], 0
        return deltas

    def _wake(self) -> None:
        self._taker = None
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _joined(deltas: list[Delta]) -> list[Delta]:
    """One delta for each sample, with all its deltas said. The reader may hold none of them."""
    found: dict[int, Delta] = {}
    for delta in deltas:
        first = found.setdefault(delta.index, delta)
        if first is not delta:
            _join(first, delta)
    return list(found.values())


def _join(first: Delta, then: Delta) -> None:
    """Text, tokens and logprobs add up; of everything else the later word counts."""
    first.text += then.text
    first.token_ids += then.token_ids
    if then.logprobs is not None:
        first.logprobs = (first.logprobs or []) + then.logprobs
    for name in _OTHERS:
        value = getattr(then, name)
        if value is not None:
            setattr(first, name, value)


def _size(delta: Delta) -> int:
    """About the bytes a delta holds."""
    size = len(delta.text) + _TOKEN_BYTES * (1 + len(delta.token_ids))
    for position in delta.logprobs or ():
        size += _LOGPROB_BYTES * len(position)
    return size

"""Runs the engine requests of one HTTP request and watches them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from octavo.engine.failures import error_of
from octavo.engine.grammars import grammar_limits
from octavo.engine.live import Taker
from octavo.engine.types import BACKGROUND_PRIORITY, Delta, Request, TokenLogprobs
from octavo.errors import OctavoError
from octavo.serving.context import Serving, chosen_adapter, in_background
from octavo.serving.errors import ApiError, translate
from octavo.serving.request_timer import RequestTimer
from octavo.serving.shortcut import Shortcut
from octavo.serving.terms import current_terms

MAX_BEHIND = 64  # batches of several prompts that wait for one reader, besides each prompt's own
Batch = list[tuple[int, Delta]]
"""(choice, delta) of all that has come since the last batch was taken. A stream's reader wakes once
for it, passes few layers, and writes once: with many streams that is most of what a token costs."""


def new_id(prefix: str, chosen: str | None = None) -> str:
    """A fresh id, "chatcmpl-...", or one with what a client has chosen."""
    return f"{prefix}-{chosen or uuid.uuid4().hex}"


class Generation:
    """Several prompts of one HTTP request. Choice numbers are prompt * n + sample."""

    def __init__(self, serving: Serving, requests: list[Request], prompt_field: str) -> None:
        self._serving, self.requests, self._prompt_field = serving, requests, prompt_field
        self.num_prompt_tokens = sum(len(request.prompt_ids) for request in requests)
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.num_reasoning_tokens = 0  # of num_output_tokens; counted by Reply
        self.prompt_logprobs: dict[int, list[TokenLogprobs | None]] = {}  # by prompt, once known
        self.one_by_one = False  # whether a batch holds one delta only, for exact counts with each
        self.shortcut: Shortcut | None = None  # past `batches`, for plain deltas of a lone choice
        self._n = requests[0].params.n
        self._open = set(range(self.num_choices))
        self._is_cut = False  # whether a choice was ended before its end
        self._is_interactive = not in_background.get()
        self._check_grammars()
        for request in requests:
            request.lora = chosen_adapter()
            current_terms().apply(request)
        if not self._is_interactive:
            for request in requests:
                request.priority += BACKGROUND_PRIORITY

    def _check_grammars(self) -> None:
        """Refuse here what is plainly too much for the engine."""
        limits = grammar_limits(self._serving.client.options)
        for grammar in {request.params.grammar for request in self.requests}:
            if grammar is not None:
                limits.check(grammar)

    @property
    def num_choices(self) -> int:
        """Choices of the whole answer."""
        return len(self.requests) * self._n

    def end_choice(self, choice: int) -> None:
        """Show no more of a choice; the engine stops it."""
        self._open.discard(choice)
        self._is_cut = True
        if self._open:  # else the whole is stopped
            place, index = divmod(choice, self._n)
            self._serving.client.end_sample(self.requests[place].request_id, index)

    async def deltas(self) -> AsyncGenerator[tuple[int, Delta]]:
        """(choice, delta) as they come; else as `batches`."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for found in batch:
                    yield found

    async def batches(self) -> AsyncGenerator[Batch]:
        """As they come. Errors are ApiErrors. Closing aborts what still runs. Counts are those of
        what was yielded."""
        self._serving.num_interactive += self._is_interactive
        try:
            async with aclosing(self._merged()) as merged:
                async for batch in merged:
                    for shown in [[one] for one in batch] if self.one_by_one else [batch]:
                        failure = self._take(shown)
                        if shown:
                            yield shown
                        if failure is not None:
                            raise failure
                        if self._is_cut and not self._open:
                            return
        except OctavoError as error:
            metrics, kind = self._serving.metrics, type(error).__name__
            (metrics.failed if self.num_output_tokens else metrics.refused)(kind)
            raise translate(error, self._prompt_field) from error
        finally:
            self._serving.num_interactive -= self._is_interactive

    def _take(self, batch: Batch) -> Exception | None:
        """Count a batch, without what belongs to choices that were ended. One that has failed is
        cut off before its failure, which is returned."""
        if self._is_cut:
            batch[:] = [one for one in batch if one[0] in self._open]
        for place, (choice, delta) in enumerate(batch):
            failure = _failure(delta)
            if failure is not None:
                del batch[place:]
                return failure
            if delta.finish_reason is not None:
                self._open.discard(choice)
            self.num_output_tokens += len(delta.token_ids)
            self.num_cached_tokens += delta.num_cached_tokens or 0
            if delta.prompt_logprobs is not None:
                self.prompt_logprobs[choice // self._n] = delta.prompt_logprobs
        return None

    def _merged(self) -> AsyncGenerator[Batch]:
        return self._observed(0) if len(self.requests) == 1 else self._many()

    async def _many(self) -> AsyncGenerator[Batch]:
        arrivals: asyncio.Queue[Batch | OctavoError | None] = asyncio.Queue(MAX_BEHIND)

        async def pump(place: int) -> None:
            try:
                async with aclosing(self._observed(place)) as batches:
                    async for batch in batches:
                        await arrivals.put(batch)
                await arrivals.put(None)
            except OctavoError as error:
                await arrivals.put(error)

        tasks = [asyncio.create_task(pump(place)) for place in range(len(self.requests))]
        running = len(tasks)
        try:
            while running:
                arrival = await arrivals.get()
                if isinstance(arrival, OctavoError):
                    raise arrival
                if arrival is None:
                    running -= 1
                else:
                    yield arrival
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _observed(self, place: int) -> AsyncGenerator[Batch]:
        request, first = self.requests[place], place * self._n
        timer = RequestTimer(self._serving.metrics, request)
        try:
            taker = self._taker(timer) if self.num_choices == 1 else None
            async with aclosing(self._serving.client.batches(request, taker)) as batches:
                async for deltas in batches:
                    for delta in deltas:
                        timer.saw(delta)
                    yield [(first + delta.index, delta) for delta in deltas]
        finally:
            timer.end()

    def _taker(self, timer: RequestTimer) -> Taker:
        """Counts and shows what may take the shortcut."""

        def take(delta: Delta) -> bool:
            shortcut = self.shortcut
            if shortcut is None or not shortcut.is_open:
                return False
            timer.saw(delta)
            self.num_output_tokens += len(delta.token_ids)
            shortcut.show(delta)
            return True

        return take


def _failure(delta: Delta) -> Exception | None:
    """What a delta that ends its request for no good reason raises."""
    if delta.error_kind is not None:
        return error_of(delta)
    if delta.finish_reason in ("error", "abort"):
        message = delta.error or "The request was aborted."
        return ApiError(500, message, kind="server_error", code="generation_failed")
    return None


@dataclass
class Choice:
    """What one choice has become."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: Delta) -> None:
        """Append a delta."""
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or []
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.stop_reason = delta.stop_reason if delta.finish_reason else self.stop_reason


async def collect(generation: Generation) -> list[Choice]:
    """All choices, finished."""
    choices = [Choice() for _ in range(generation.num_choices)]
    async with aclosing(generation.deltas()) as deltas:
        async for index, delta in deltas:
            choices[index].add(delta)
    return choices

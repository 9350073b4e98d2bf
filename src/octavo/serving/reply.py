"""The answer to a conversation: deltas of the engine with their text cut into parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from msgspec import field

from octavo.decoding.thinking import Thinking
from octavo.engine.types import Delta, TokenLogprobs
from octavo.parsing import Answer, Parser, Part, ToolCallPart
from octavo.serving.generation import Generation

EndReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class ReplyDelta:
    """One engine delta of one choice. parts: what it showed, in order; often one, may be none.
    raw: its token ids and logprobs. finish_reason and stop_reason: with the choice's last."""

    index: int
    parts: list[Part]
    raw: Delta
    finish_reason: EndReason | None = None
    stop_reason: int | str | None = None


class ReplyChoice(Answer):
    """What one choice has become."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: EndReason | None = None
    stop_reason: int | str | None = None

    def take(self, delta: ReplyDelta) -> None:
        """Append a delta."""
        for part in delta.parts:
            self.add(part)
        self.token_ids += delta.raw.token_ids
        self.logprobs += delta.raw.logprobs or []
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class Reply:
    """One conversation's answer; `generation` has its token counts. new_tracker: counts what a
    choice thinks, where tokens tell. single_call: a choice ends where its second tool call begins.
    """

    def __init__(
        self,
        generation: Generation,
        new_parser: Callable[[], Parser],
        *,
        new_tracker: Callable[[], Thinking | None] = lambda: None,
        single_call: bool = False,
    ) -> None:
        self.generation, self._single_call = generation, single_call
        generation.num_reasoning_tokens = 0
        self._parsers = [new_parser() for _ in range(generation.num_choices)]
        self._trackers = [new_tracker() for _ in range(generation.num_choices)]
        self._called = [False] * generation.num_choices
        self._over = [False] * generation.num_choices

    @property
    def id(self) -> str:
        """The engine request's id."""
        return self.generation.requests[0].request_id

    @property
    def may_end_early(self) -> bool:
        """Whether a choice may end while its engine request goes on."""
        return self._single_call

    async def deltas(self) -> AsyncGenerator[ReplyDelta]:
        """As they come. Errors are ApiErrors. Closing aborts what still runs."""
        async with aclosing(self.generation.deltas()) as deltas:
            async for index, delta in deltas:
                cut = self.cut(index, delta)
                if cut is not None:
                    yield cut

    async def collect(self) -> list[ReplyChoice]:
        """All choices, finished."""
        choices = [ReplyChoice() for _ in self._parsers]
        async with aclosing(self.deltas()) as deltas:
            async for delta in deltas:
                choices[delta.index].take(delta)
        return choices

    def cut(self, index: int, delta: Delta) -> ReplyDelta | None:
        """The next delta of `generation` in parts, for who reads that itself; None for one of a
        choice that is over."""
        if self._over[index]:
            return None
        parts = self._parts(index, delta)
        if self._single_call and (end := _second_call(parts)) is not None:
            self._over[index] = True
            self.generation.end_choice(index)
            return ReplyDelta(index, parts[:end], delta, "tool_calls")
        if delta.finish_reason is None:
            return ReplyDelta(index, parts, delta)
        reason: EndReason = "length" if delta.finish_reason == "length" else "stop"
        if self._called[index] and reason == "stop":
            reason = "tool_calls"
        return ReplyDelta(index, parts, delta, reason, delta.stop_reason)

    def _parts(self, index: int, delta: Delta) -> list[Part]:
        parser = self._parsers[index]
        self._count_thinking(index, delta.token_ids)
        parts = parser.push(delta.text, delta.token_ids)
        if delta.finish_reason is not None:
            parts = [*parts, *parser.finish()]
        if any(isinstance(part, ToolCallPart) for part in parts):
            self._called[index] = True
        return parts

    def _count_thinking(self, index: int, token_ids: list[int]) -> None:
        """By tokens where they tell; else by deltas, which mostly have one token."""
        tracker = self._trackers[index]
        if tracker is None:
            thought = len(token_ids) if self._parsers[index].thinking else 0
        else:
            before = tracker.num_tokens
            for token in token_ids:
                tracker.push(token)
            thought = tracker.num_tokens - before
        self.generation.num_reasoning_tokens += thought


def _second_call(parts: list[Part]) -> int | None:
    """Where it begins."""
    for place, part in enumerate(parts):
        if isinstance(part, ToolCallPart) and part.place > 0:
            return place
    return None

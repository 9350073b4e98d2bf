"""One sample of a request inside the engine: a scheduler's sequence plus how it is decoded."""

from __future__ import annotations

import time
from collections.abc import Sequence as Ids
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from octavo.cache import BlockTable
from octavo.decoding.matcher import Matcher
from octavo.decoding.pooling import Pool
from octavo.decoding.thinking import Thinking
from octavo.engine.types import (
    BACKGROUND_PRIORITY,
    Delta,
    FinishReason,
    Request,
    RequestMetrics,
    TokenLogprobs,
)
from octavo.scheduler import Sequence
from octavo.scheduler.sequence import Rank

if TYPE_CHECKING:
    from octavo.decoding.bad_words import BadWords
    from octavo.decoding.grammar_compiler import CompiledGrammar
    from octavo.engine.text import TextStream


REPEATED = "repetition_detected"


class RequestState(Struct, eq=False, weakref=True):
    """A request in the engine. `num_live` samples are not finished yet."""

    request: Request
    metrics: RequestMetrics
    samples: list[Sample] = field(default_factory=list)
    num_live: int = 0
    num_cached: int | None = None  # prompt tokens the prefix cache gave; set on admission
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    told: bool = False  # whether the first delta went out
    pool: Pool | None = None  # of a request for an embedding

    def introduce(self, delta: Delta) -> None:
        """The request's first delta carries what is known once."""
        if not self.told:
            self.told = True
            self.metrics.first_token_s = time.monotonic()
            delta.prompt_logprobs = self.prompt_logprobs
            delta.num_cached_tokens = self.num_cached or 0


class Sample(Sequence):
    """max_len: ids at which the sample ends for length. stop_ids: tokens that end it. banned: ids
    that must not come before min_tokens. text: None when only ids are wanted. matcher: how far the
    output has come in its grammar, if it has one. adapter: its number, -1 for none. done:
    its last delta is made."""

    __slots__ = (
        "_bad_words",
        "_history",
        "_history_len",
        "adapter",
        "banned",
        "done",
        "index",
        "matcher",
        "max_len",
        "params",
        "penalised",
        "request_id",
        "seed",
        "state",
        "stop_ids",
        "text",
        "thinking",
    )

    def __init__(
        self,
        state: RequestState,
        index: int,
        table: BlockTable,
        rank: Rank,
        seed: int,
        max_len: int,
        eos_ids: tuple[int, ...],
        text: TextStream | None,
        bad_words: BadWords | None = None,
        adapter: int = -1,
    ) -> None:
        super().__init__(list(state.request.prompt_ids), table, rank, state.request.tenant)
        params = state.request.params
        self.state = state
        self.request_id = state.request.request_id
        self.index = index
        self.params = params
        self.seed = seed
        self.max_len = max_len
        self.stop_ids = frozenset(params.stop_token_ids) | (
            frozenset() if params.ignore_eos else frozenset(eos_ids)
        )
        self.banned = tuple(sorted(self.stop_ids)) if params.min_tokens > 0 else ()
        self._bad_words = bad_words
        self.text = text
        self.adapter = adapter
        self.matcher: Matcher | None = None
        budget = params.thinking_budget
        self.thinking = Thinking(budget) if budget is not None else None
        self.done = False
        penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        self.penalised = penalties != (1.0, 0.0, 0.0)
        self._history: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._history_len = 0

    def replay(self, tokens: list[int]) -> None:
        """Take up tokens that an engine drew before it died; all they led to is as it was then."""
        for token in tokens:
            self.take(token)
            if self.text is not None:
                self.text.push(token, self.num_output > self.params.min_tokens)

    def take(self, token: int) -> None:
        """Append a token of the output."""
        self.ids.append(token)
        if self.thinking is not None:
            self.thinking.push(token)

    def read(self, token: int, ended: bool) -> tuple[str, str | None]:
        """The text that the token just appended adds, and the stop string it completes. ended: it
        is the last one."""
        stream, params = self.text, self.params
        if stream is None:
            return "", None
        text, matched = "", None
        if token not in self.stop_ids or params.include_stop_str_in_output:
            text, matched = stream.push(token, self.num_output > params.min_tokens)
        if ended and matched is None:
            tail, matched = stream.finish()
            text += tail
        return text, matched

    def history(self) -> NDArray[np.int32]:
        """All ids so far as an array, [len(ids)]; grown in place, not rebuilt."""
        count = len(self.ids)
        if count > len(self._history):
            self._history = np.zeros(2 * count, dtype=np.int32)
            self._history_len = 0
        self._history[self._history_len : count] = self.ids[self._history_len :]
        self._history_len = count
        return self._history[:count]

    @property
    def may_ban(self) -> bool:
        """Whether `bans` may ever name a token."""
        return bool(self.banned) or self._bad_words is not None

    def bans(self) -> Ids[int]:
        """Tokens that must not come next."""
        banned = self.banned if self.num_output < self.params.min_tokens else ()
        if self._bad_words is None:
            return banned
        return [*banned, *self._bad_words.after(self.ids, self.num_prompt)]

    def constrain(self, grammar: CompiledGrammar) -> None:
        """Hold the output to a grammar, from its first token on."""
        self.matcher = grammar.new_matcher()
        self.matcher.advance(self.ids[self.num_prompt :])

    def end_by(self, token: int) -> tuple[FinishReason | None, int | str | None]:
        """Whether the token just appended ends the sample, and the stop id to report: None for
        an end-of-sequence token, as vLLM does, and REPEATED for an answer that goes in circles."""
        if token in self.stop_ids:
            return "stop", token if token in self.params.stop_token_ids else None
        if self.matcher is not None and self.matcher.is_complete:
            return "stop", None
        if len(self.ids) >= self.max_len:
            return "length", None
        detection = self.params.repetition_detection
        if detection is not None and detection.found(self.ids, self.num_prompt):
            return "stop", REPEATED
        return None, None


def request_priority(request: Request, policy: str) -> int:
    """The priority that counts under a scheduling policy; background work waits under any."""
    if policy == "priority":
        return request.priority
    return int(request.priority >= BACKGROUND_PRIORITY)


def request_seed(engine_seed: int, request: Request) -> int:
    """The request's own seed, or one derived from the engine's and the request's id."""
    if request.params.seed is not None:
        return request.params.seed
    text = f"{engine_seed}:{request.request_id}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

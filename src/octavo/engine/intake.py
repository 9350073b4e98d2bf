"""From a request to its samples, as they stand before the first step."""

from __future__ import annotations

import time

from octavo.cache import KvCache
from octavo.decoding.bad_words import BadWords
from octavo.decoding.build import sample_seed
from octavo.engine.adapters import Adapters
from octavo.engine.options import EngineOptions
from octavo.engine.sample import RequestState, Sample, request_priority, request_seed
from octavo.engine.text import TextStream
from octavo.engine.types import Request, RequestMetrics, Resumption
from octavo.tokenizer.base import Tokenizer


class Intake:
    """Numbers requests in order of arrival. Takes no blocks; that is the scheduler's."""

    def __init__(
        self,
        options: EngineOptions,
        tokenizer: Tokenizer | None,
        cache: KvCache,
        max_model_len: int,
        eos_ids: tuple[int, ...],
        adapters: Adapters,
        prompts_differ: bool,
    ) -> None:
        """prompts_differ: as the executable has it."""
        self._options, self._tokenizer, self._cache = options, tokenizer, cache
        self._max_model_len, self._eos_ids = max_model_len, eos_ids
        self._adapters, self._prompts_differ = adapters, prompts_differ
        self._arrivals = 0

    def new_state(self, request: Request) -> RequestState:
        """A request's state. The first sample leads the others, which follow when the prompt is
        computed; those of a resumed request go their own ways."""
        self._arrivals += 1
        arrival = request.arrival_s or time.monotonic()
        state = RequestState(request, RequestMetrics(arrival), num_live=request.params.n)
        words, tokenizer = request.params.bad_words, self._tokenizer
        bad_words = BadWords(tokenizer, words) if words and tokenizer is not None else None
        state.samples = [self._new_sample(state, i, bad_words) for i in range(request.params.n)]
        if request.resumption is not None:
            _resume(state, request.resumption)
            return state
        leader = state.samples[0]
        leader.followers = state.samples[1:]
        if request.params.prompt_logprobs is not None:
            leader.num_to_score = leader.num_prompt - 1
            state.prompt_logprobs = [None]
        return state

    def _new_sample(self, state: RequestState, index: int, bad_words: BadWords | None) -> Sample:
        request, params = state.request, state.request.params
        limit = self._max_model_len
        priority = request_priority(request, self._options.scheduling_policy)
        text = None
        if self._tokenizer is not None and params.detokenize:
            text = TextStream(self._tokenizer, params)
        if params.max_tokens is not None:
            limit = min(limit, len(request.prompt_ids) + params.max_tokens)
        adapter = self._adapters.number(request.lora)
        num_prompt = len(request.prompt_ids) if self._prompts_differ else None
        return Sample(
            state,
            index,
            self._cache.new_table(
                request.cache_salt, request.use_prefix_cache, adapter, num_prompt
            ),
            (priority, self._arrivals, index),
            sample_seed(request_seed(self._options.seed, request), index),
            limit,
            self._eos_ids,
            text,
            bad_words,
            adapter,
        )


def _resume(state: RequestState, done: Resumption) -> None:
    """Bring a new state to where another engine had brought the request. Its samples have parted
    ways: each computes its own tokens again, as after a preemption."""
    state.told = True
    state.num_cached = done.num_cached_tokens
    state.metrics.first_scheduled_s = done.first_scheduled_s
    state.metrics.first_token_s = done.first_token_s
    for sample, tokens, ended in zip(state.samples, done.outputs, done.ended, strict=True):
        sample.replay(tokens)
        sample.done = ended
        state.num_live -= ended

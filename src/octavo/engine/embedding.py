"""Engines whose requests end in a vector or a score instead of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.backends.base import Floats, Ints, Step
from octavo.decoding.batch import SampleResult
from octavo.decoding.params import SamplingParams
from octavo.decoding.pooling import POOLINGS, Pool, Pooling
from octavo.engine.engine import Engine
from octavo.engine.sample import RequestState, Sample
from octavo.engine.types import Delta, FinishReason, Request, RequestOutput
from octavo.errors import EngineError, InvalidParameterError
from octavo.scheduler import Schedule

EMBED_ONLY = SamplingParams(max_tokens=0, prompt_logprobs=0)
"""The sampling parameters of a request for a vector or a score: no token is drawn."""


@dataclass
class EmbeddingOutput:
    """One prompt's embedding, float32 [dimensions], as `LLM.embed` returns it."""

    prompt: str | None
    prompt_token_ids: list[int]
    embedding: Floats

    @classmethod
    def of(cls, output: RequestOutput) -> EmbeddingOutput:
        """Of a finished request."""
        return cls(output.prompt, output.prompt_token_ids, vector_of(output))


@dataclass
class ScoringOutput:
    """How well two texts go together, as `LLM.score` returns it."""

    score: float
    prompt_token_ids: list[int]


def vector_of(output: RequestOutput) -> Floats:
    """What a finished request for a vector or a score has brought."""
    if output.embedding is None:
        raise EngineError(f"request {output.request_id}: ended without a vector")
    return np.frombuffer(output.embedding, np.float32)


class EmbeddingEngine(Engine):
    """The executable gives final hidden states [R, hidden] where others give logits. All prompts of
    a step run as one; each goes through the queue, is cancelled and preempted like any other."""

    def check(self, request: Request) -> None:
        """Raise a RequestError if this engine can never serve the request."""
        super().check(request)
        if request.pooling is not None:
            request.pooling.check_width(self.config.hidden_size)

    def _new_state(self, request: Request) -> RequestState:
        state = super()._new_state(request)
        state.prompt_logprobs = None
        for sample in state.samples:
            sample.num_to_score = sample.num_prompt
        state.pool = self._new_pool(request)
        return state

    def _new_pool(self, request: Request) -> Pool:
        usual = next(kind for kind in POOLINGS if kind == self.options.pooling)
        return Pool(request.pooling or Pooling(), usual, self.options.normalize is not False)

    def _run(self, plan: Schedule[Sample]) -> list[tuple[list[Sample], SampleResult]]:
        rows = self._executable.forward(self._builder.build([], plan.chunks, of_prompts=True))
        starts = np.cumsum([0, *(chunk.count for chunk in plan.chunks)])
        for chunk, start in zip(plan.chunks, starts.tolist(), strict=False):
            pool = chunk.sequence.state.pool
            assert pool is not None  # made with the request
            if chunk.start == 0:
                pool.clear()  # it may have been preempted
            pool.add(rows[start : start + chunk.count])
        return []

    def _finish(self, sample: Sample, reason: FinishReason, error: str | None = None) -> Delta:
        delta = super()._finish(sample, reason, error)
        pool = sample.state.pool
        if reason == "length" and pool is not None:
            delta.embedding = pool.result().tobytes()
        return delta


class ScoringEngine(EmbeddingEngine):
    """A cross-encoder: the executable gives a label [R, 1] for each pair, read at its first token.
    Prompts are whole in a step, as every encoder's are."""

    def check(self, request: Request) -> None:
        """Raise a RequestError if this engine can never serve the request."""
        super().check(request)
        start, length = request.pair_start, len(request.prompt_ids)
        if start is None or not 0 <= start <= length:
            expected = f"where the second text begins in {length} tokens"
            raise InvalidParameterError("pair_start", f"got {start}, expected {expected}")

    def _new_pool(self, request: Request) -> Pool:
        return Pool(Pooling(normalize=False), "cls")

    def _run(self, plan: Schedule[Sample]) -> list[tuple[list[Sample], SampleResult]]:
        step = self._builder.build([], plan.chunks, of_prompts=True)
        step.types = self._types(plan, step)
        step.logit_rows = step.query_start[:-1]
        labels = self._executable.forward(step)
        for index, chunk in enumerate(plan.chunks):
            pool = chunk.sequence.state.pool
            assert pool is not None  # made with the request
            pool.clear()
            pool.add(labels[index : index + 1])
        return []

    def _types(self, plan: Schedule[Sample], step: Step) -> Ints | None:
        """1 for the tokens of second texts, where the model tells them from first ones."""
        encoder = self.config.encoder
        if encoder is None or encoder.num_types < 2:
            return None
        types = np.zeros_like(step.tokens)
        for chunk, end in zip(plan.chunks, step.query_start[1:].tolist(), strict=True):
            begin = chunk.sequence.state.request.pair_start or 0
            types[end - chunk.count + begin : end] = 1
        return types

"""An engine whose requests end in a vector instead of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.backends.base import Floats
from octavo.decoding.batch import SampleResult
from octavo.decoding.params import SamplingParams
from octavo.decoding.pooling import POOLINGS, Pool, Pooling, PoolingKind
from octavo.engine.engine import Engine
from octavo.engine.sample import RequestState, Sample
from octavo.engine.types import Delta, FinishReason, Request, RequestOutput
from octavo.errors import EngineError
from octavo.scheduler import Schedule

EMBED_ONLY = SamplingParams(max_tokens=0, prompt_logprobs=0)
"""The sampling parameters of a request for an embedding: no token is drawn."""


@dataclass
class EmbeddingOutput:
    """One prompt's embedding, float32 [dimensions], as `LLM.embed` returns it."""

    prompt: str | None
    prompt_token_ids: list[int]
    embedding: Floats

    @classmethod
    def of(cls, output: RequestOutput) -> EmbeddingOutput:
        """Of a finished request."""
        if output.embedding is None:
            raise EngineError(f"request {output.request_id}: ended without an embedding")
        numbers = np.frombuffer(output.embedding, np.float32)
        return cls(output.prompt, output.prompt_token_ids, numbers)


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
        state.pool = Pool(request.pooling or Pooling(), self._kind_of(request))
        return state

    def _kind_of(self, request: Request) -> PoolingKind:
        chosen = request.pooling and request.pooling.kind
        usual = next(kind for kind in POOLINGS if kind == self.options.pooling)
        return chosen or usual

    def _run(self, plan: Schedule[Sample], drawing: list[Sample]) -> SampleResult | None:
        rows = self._executable.forward(self._builder.build([], plan.chunks))
        starts = np.cumsum([0, *(chunk.count for chunk in plan.chunks)])
        for chunk, start in zip(plan.chunks, starts.tolist(), strict=False):
            pool = chunk.sequence.state.pool
            assert pool is not None  # made with the request
            if chunk.start == 0:
                pool.clear()  # it may have been preempted
            pool.add(rows[start : start + chunk.count])
        return None

    def _finish(self, sample: Sample, reason: FinishReason, error: str | None = None) -> Delta:
        delta = super()._finish(sample, reason, error)
        pool = sample.state.pool
        if reason == "length" and pool is not None:
            delta.embedding = pool.result().tobytes()
        return delta

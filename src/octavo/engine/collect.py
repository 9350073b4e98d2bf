"""Puts the deltas of a request together again."""

from __future__ import annotations

from octavo.engine.failures import error_of
from octavo.engine.types import CompletionOutput, Delta, Request, RequestOutput
from octavo.errors import EngineError


class Collector:
    """Grows one RequestOutput from its deltas."""

    def __init__(self, request: Request) -> None:
        samples = [CompletionOutput(i) for i in range(request.params.n)]
        if request.params.logprobs is not None:
            for sample in samples:
                sample.logprobs, sample.cumulative_logprob = [], 0.0
        self.output = RequestOutput(
            request.request_id, request.prompt, list(request.prompt_ids), samples
        )
        self._num_live = request.params.n

    def add(self, delta: Delta) -> bool:
        """Add one delta; True once every sample is finished. Raises the request's own error, or
        EngineError if the engine failed it."""
        if delta.finish_reason == "error":
            if delta.error_kind is not None:
                raise error_of(delta)
            raise EngineError(f"request {delta.request_id}: {delta.error}")
        sample = self.output.outputs[delta.index]
        sample.text += delta.text
        sample.token_ids += delta.token_ids
        if delta.logprobs and sample.logprobs is not None:
            _add_logprobs(sample, delta)
        self._add_once(delta)
        if delta.finish_reason is not None:
            sample.finish_reason, sample.stop_reason = delta.finish_reason, delta.stop_reason
            self._num_live -= 1
        self.output.finished = self._num_live == 0
        return self.output.finished

    def _add_once(self, delta: Delta) -> None:
        if delta.prompt_logprobs is not None:
            self.output.prompt_logprobs = delta.prompt_logprobs
        if delta.num_cached_tokens is not None:
            self.output.num_cached_tokens = delta.num_cached_tokens
        if delta.embedding is not None:
            self.output.embedding = delta.embedding
        if delta.metrics is not None:
            self.output.metrics = delta.metrics


def _add_logprobs(sample: CompletionOutput, delta: Delta) -> None:
    assert delta.logprobs is not None
    assert sample.logprobs is not None
    sample.logprobs += delta.logprobs
    chosen = zip(delta.token_ids, delta.logprobs, strict=True)
    total = sum(position[token].logprob for token, position in chosen)
    sample.cumulative_logprob = (sample.cumulative_logprob or 0.0) + total

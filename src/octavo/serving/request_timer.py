"""Watches one engine request: its histograms, and what its log line and its caller may know."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from octavo.decoding import SamplingParams
from octavo.engine.types import Delta, Request, RequestMetrics
from octavo.serving.metrics import Metrics
from octavo.serving.record import current_record


@dataclass
class Timings:
    """One engine request, once it is over. Times in seconds; None where it never got."""

    request_id: str
    prompt_tokens: int
    params: SamplingParams
    began_s: float  # on the monotonic clock
    ended_s: float = 0.0
    cached_tokens: int | None = None
    output_tokens: int = 0
    longest_sample: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    first_token_s: float | None = None  # since began_s, as are none of the following
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    num_preemptions: int = 0

    @property
    def mean_itl_s(self) -> float | None:
        """Decoding time per token after the first."""
        steps = self.longest_sample - 1
        return self.decode_s / steps if self.decode_s is not None and steps > 0 else None


class RequestTimer:
    """Call `saw` on each delta, `end` once."""

    def __init__(self, metrics: Metrics, request: Request) -> None:
        self._metrics, self._params = metrics, request.params
        began = request.arrival_s or time.monotonic()
        self.timings = Timings(request.request_id, len(request.prompt_ids), request.params, began)
        self._last: dict[int, float] = {}
        self._tokens: Counter[int] = Counter()

    def saw(self, delta: Delta) -> None:
        """A delta arrived."""
        if delta.token_ids:
            now, index = time.monotonic(), delta.index
            last = self._last
            if index in last:
                self._metrics.itl.observe(now - last[index])
            elif not last:
                self.timings.first_token_s = now - self.timings.began_s
                self._metrics.ttft.observe(self.timings.first_token_s)
            last[index] = now
            self._tokens[index] += len(delta.token_ids)
        if delta.num_cached_tokens is not None:
            self.timings.cached_tokens = delta.num_cached_tokens
        if delta.finish_reason is not None:
            self.timings.finish_reasons.append(delta.finish_reason)
            if delta.metrics is not None:
                self._take(delta.metrics)

    def _take(self, times: RequestMetrics) -> None:
        """What the engine measured; its clock is this process's."""
        timings = self.timings
        timings.num_preemptions = times.num_preemptions
        if times.first_scheduled_s is None:
            return
        timings.queue_s = times.first_scheduled_s - times.arrival_s
        if times.first_token_s is not None:
            timings.prefill_s = times.first_token_s - times.first_scheduled_s
            if times.finished_s is not None:
                timings.decode_s = times.finished_s - times.first_token_s

    def end(self) -> None:
        """The request is over, however it ended."""
        timings, metrics = self.timings, self._metrics
        timings.ended_s = time.monotonic()
        timings.output_tokens = self._tokens.total()
        timings.longest_sample = max(self._tokens.values(), default=0)
        metrics.e2e.observe(timings.ended_s - timings.began_s)
        metrics.prompt.observe(timings.prompt_tokens)
        metrics.output.observe(timings.output_tokens)
        metrics.max_output.observe(timings.longest_sample)
        metrics.samples.observe(self._params.n)
        metrics.preemptions.observe(timings.num_preemptions)
        if self._params.max_tokens is not None:
            metrics.max_tokens.observe(self._params.max_tokens)
        if timings.cached_tokens is not None:
            metrics.computed.observe(timings.prompt_tokens - timings.cached_tokens)
        self._observe_phases()
        record = current_record()
        if record is not None:
            record.add(timings)

    def _observe_phases(self) -> None:
        timings, metrics = self.timings, self._metrics
        if timings.queue_s is not None:
            metrics.queue.observe(timings.queue_s)
        if timings.prefill_s is not None:
            metrics.prefill.observe(timings.prefill_s)
        if timings.decode_s is not None:
            metrics.decode.observe(timings.decode_s)
            metrics.inference.observe((timings.prefill_s or 0.0) + timings.decode_s)
        if timings.mean_itl_s is not None:
            metrics.tpot.observe(timings.mean_itl_s)

"""Prometheus metrics: vLLM's names and buckets under the `octavo:` prefix."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.engine.stats import EngineStats
from octavo.engine.types import Delta, Request

LATENCY_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5),
    *(0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
TOKEN_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
SAMPLES = (1, 2, 5, 10, 20)

# name, help, EngineStats attribute
GAUGES = (
    ("num_requests_running", "Sequences in the batch.", "num_running"),
    ("num_requests_waiting", "Sequences in the queue.", "num_waiting"),
    ("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", "kv_usage"),
    ("kv_blocks", "KV blocks in all.", "num_blocks"),
    ("kv_blocks_used", "KV blocks held by requests.", "num_used_blocks"),
    ("kv_blocks_free", "KV blocks that can be taken, cached ones included.", "num_free_blocks"),
    ("kv_blocks_cached", "Free KV blocks whose prefix can still be found.", "num_cached_blocks"),
    ("last_step_seconds", "Duration of the last step.", "last_step_s"),
    ("last_step_tokens", "Tokens computed in the last step.", "last_step_tokens"),
)
COUNTERS = (
    (
        "prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        "prefix_cache_queries",
    ),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", "prefix_cache_hits"),
    ("num_preemptions", "Sequences set back to the queue for lack of blocks.", "num_preemptions"),
    ("prompt_tokens", "Prompt tokens computed.", "prompt_tokens"),
    ("generation_tokens", "Tokens generated.", "generation_tokens"),
    ("engine_steps", "Steps run.", "num_steps"),
    ("engine_step_errors", "Steps that failed.", "num_step_errors"),
)


class Metrics:
    """Histograms observed here, counters and gauges read from the engine at scrape time."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._model_name = model_name
        self._engine = _EngineCollector(model_name)
        self.registry.register(self._engine)
        self.ttft = self._histogram(
            "time_to_first_token_seconds", "Arrival to first token.", TTFT_S
        )
        self.itl = self._histogram("inter_token_latency_seconds", "Between deltas.", TOKEN_S)
        self.e2e = self._histogram("e2e_request_latency_seconds", "Arrival to end.", LATENCY_S)
        self.prompt = self._histogram("request_prompt_tokens", "Prompt tokens.", TOKENS)
        self.output = self._histogram("request_generation_tokens", "Tokens of all samples.", TOKENS)
        self.samples = self._histogram("request_params_n", "Samples asked for.", SAMPLES)
        self.rejections = Counter(
            "octavo:admission_rejections",
            "Requests refused before they ran.",
            ("model_name", "reason"),
            registry=self.registry,
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(
            f"octavo:{name}", text, ("model_name",), buckets=buckets, registry=self.registry
        )
        return family.labels(self._model_name)

    def refused(self, reason: str) -> None:
        """Count a refused request; `reason` is the error's class name."""
        self.rejections.labels(self._model_name, reason).inc()

    def update(self, stats: EngineStats | None, up: bool, restarts: int) -> None:
        """Take the engine's snapshot for the next scrape; None if it gives none."""
        self._engine.stats, self._engine.up, self._engine.restarts = stats, up, restarts


class RequestTimer:
    """Observes one request: call `saw` on each delta, `end` once."""

    def __init__(self, metrics: Metrics, request: Request) -> None:
        self._metrics, self._request = metrics, request
        self._began = time.monotonic()
        self._last: dict[int, float] = {}
        self._tokens = 0

    def saw(self, delta: Delta) -> None:
        """A delta arrived."""
        now = time.monotonic()
        if delta.token_ids:
            if not self._last:
                self._metrics.ttft.observe(now - self._began)
            elif delta.index in self._last:
                self._metrics.itl.observe(now - self._last[delta.index])
            self._last[delta.index] = now
            self._tokens += len(delta.token_ids)

    def end(self) -> None:
        """The request is over, however it ended."""
        self._metrics.e2e.observe(time.monotonic() - self._began)
        self._metrics.prompt.observe(len(self._request.prompt_ids))
        self._metrics.output.observe(self._tokens)
        self._metrics.samples.observe(self._request.params.n)


class _EngineCollector(Collector):
    """Turns the latest EngineStats into metric families."""

    def __init__(self, model_name: str) -> None:
        self._labels = (model_name,)
        self.stats: EngineStats | None = None
        self.up, self.restarts = False, 0

    def collect(self) -> Iterator[Metric]:
        """The families; only engine_up and engine_restarts while the engine is silent."""
        yield self._gauge("engine_up", "Whether the engine takes requests.", float(self.up))
        yield self._counter("engine_restarts", "Times the engine was started anew.", self.restarts)
        if self.stats is None:
            return
        for name, text, attribute in GAUGES:
            yield self._gauge(name, text, getattr(self.stats, attribute))
        for name, text, attribute in COUNTERS:
            yield self._counter(name, text, getattr(self.stats, attribute))
        success = CounterMetricFamily(
            "octavo:request_success",
            "Finished samples by reason.",
            labels=("model_name", "finished_reason"),
        )
        for reason, count in self.stats.finished.items():
            success.add_metric((*self._labels, reason), count)
        yield success

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"octavo:{name}", text, labels=("model_name",))
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"octavo:{name}", text, labels=("model_name",))
        family.add_metric(self._labels, value)
        return family

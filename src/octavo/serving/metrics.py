"""Prometheus metrics of the server: what is counted here and what the engine counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from octavo.engine.histogram import Histogram
from octavo.engine.stats import EngineStats
from octavo.serving import metric_names as names
from octavo.serving.exposition import bucket_sums
from octavo.serving.http_metrics import HttpMetrics
from octavo.serving.metric_names import Compat, Name

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Metrics(Collector):
    """Histograms are observed here, once a delta or a request and without a lock: all calls belong
    to the event loop. The engine's counters are taken in by `update` before a scrape."""

    def __init__(self, model_name: str, compat: Compat = "octavo") -> None:
        self._compat, self._model_name = compat, model_name
        observed = {key: Histogram(n.buckets) for key, n in names.REQUEST_HISTOGRAMS.items()}
        self._observed = observed
        self.ttft, self.itl, self.tpot = observed["ttft"], observed["itl"], observed["tpot"]
        self.e2e, self.queue, self.inference = (observed[k] for k in ("e2e", "queue", "inference"))
        self.prefill, self.decode = observed["prefill"], observed["decode"]
        self.prompt, self.output = observed["prompt"], observed["output"]
        self.max_output, self.max_tokens = observed["max_output"], observed["max_tokens"]
        self.samples, self.computed = observed["samples"], observed["computed"]
        self.preemptions = observed["preemptions"]
        self.rejections: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.http = HttpMetrics(compat)
        self.kv_dtype, self.prefix_caching = "auto", True
        self.stats: EngineStats | None = None
        self._up, self._restarts = False, 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.registry.register(self.http)
        ProcessCollector(registry=self.registry)

    def watch_engine_process(self, pid: Callable[[], int]) -> None:
        """Show the engine process's memory, processor time and files, too."""
        ProcessCollector(namespace="octavo_engine", pid=pid, registry=self.registry)

    def refused(self, reason: str) -> None:
        """Count a refused request; `reason` is a word, or an error class's name."""
        self.rejections[_word(reason)] += 1

    def failed(self, reason: str) -> None:
        """Count a request that had shown something and could not be finished."""
        self.failures[_word(reason)] += 1

    def update(self, stats: EngineStats | None, up: bool, restarts: int) -> None:
        """Take the engine's snapshot for the next scrape; None if it gives none."""
        self.stats, self._up, self._restarts = stats, up, restarts

    def collect(self) -> Iterator[Metric]:
        """All families; without the engine's own while it is silent."""
        yield self._gauge(names.UP, float(self._up))
        yield self._counter(names.RESTARTS, self._restarts)
        yield self._by(CounterMetricFamily, names.REJECTIONS, "reason", self.rejections)
        yield self._by(CounterMetricFamily, names.FAILURES, "reason", self.failures)
        for key, name in names.REQUEST_HISTOGRAMS.items():
            yield self._histogram(name, self._observed[key])
        if self.stats is not None:
            yield from self._engine(self.stats)

    def _engine(self, stats: EngineStats) -> Iterator[Metric]:
        for attribute, name in names.GAUGES.items():
            yield self._gauge(name, getattr(stats, attribute))
        for attribute, name in names.COUNTERS.items():
            yield self._counter(name, getattr(stats, attribute))
        for attribute, name in names.ENGINE_HISTOGRAMS.items():
            yield self._histogram(name, getattr(stats, attribute))
        waiting, finished = stats.waiting_by_reason, stats.finished
        yield self._by(GaugeMetricFamily, names.WAITING, "reason", waiting)
        yield self._by(CounterMetricFamily, names.SUCCESS, "finished_reason", finished)
        yield self._cache_info(stats)

    def _cache_info(self, stats: EngineStats) -> Metric:
        facts = {
            "block_size": str(stats.block_size),
            "num_gpu_blocks": str(stats.num_blocks),  # vLLM's word for blocks on any device
            "cache_dtype": self.kv_dtype,
            "enable_prefix_caching": str(self.prefix_caching),
        }
        labels = self._labels(names.CACHE_INFO)
        family = GaugeMetricFamily(
            names.CACHE_INFO.full(self._compat), names.CACHE_INFO.help, labels=(*labels, *facts)
        )
        family.add_metric([*labels.values(), *facts.values()], 1)
        return family

    def _labels(self, name: Name) -> dict[str, str]:
        """vLLM numbers its engines."""
        engine = {"engine": "0"} if self._compat == "vllm" and name.in_vllm else {}
        return {"model_name": self._model_name, **engine}

    def _gauge(self, name: Name, value: float) -> Metric:
        labels = self._labels(name)
        family = GaugeMetricFamily(name.full(self._compat), name.help, labels=tuple(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _counter(self, name: Name, value: float) -> Metric:
        labels = self._labels(name)
        family = CounterMetricFamily(name.full(self._compat), name.help, labels=tuple(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _by(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: Name,
        label: str,
        values: dict[str, int],
    ) -> Metric:
        labels = self._labels(name)
        family = kind(name.full(self._compat), name.help, labels=(*labels, label))
        for key, value in sorted(values.items()):
            family.add_metric([*labels.values(), key], value)
        return family

    def _histogram(self, name: Name, histogram: Histogram) -> Metric:
        labels = self._labels(name)
        family = HistogramMetricFamily(name.full(self._compat), name.help, labels=tuple(labels))
        family.add_metric(list(labels.values()), *bucket_sums(histogram))
        return family


def _word(reason: str) -> str:
    """ "QueueFullError" as "queue_full"."""
    return _WORD.sub("_", reason.removesuffix("Error")).lower()

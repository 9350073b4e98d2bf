"""What the HTTP side counts: answers, durations, sizes, connections."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from octavo.engine.histogram import Histogram
from octavo.serving import metric_names as names
from octavo.serving.exposition import bucket_sums
from octavo.serving.metric_names import Compat, Name

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Sizes:
    """Bodies of one route."""

    def __init__(self) -> None:
        self.count, self.sum_bytes = 0, 0

    def add(self, size_bytes: int) -> None:
        """One body."""
        self.count += 1
        self.sum_bytes += size_bytes


class HttpMetrics(Collector):
    """`answered` once a request. handler: the route's pattern or "none", so that clients cannot
    make up label values."""

    def __init__(self, compat: Compat) -> None:
        self._prefix = "" if compat == "vllm" else "octavo:"
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[tuple[str, str], Histogram] = defaultdict(
            lambda: Histogram(names.HTTP_S)
        )
        self._highr = Histogram(names.HTTP_HIGHR_S)
        self._in: defaultdict[str, _Sizes] = defaultdict(_Sizes)
        self._out: defaultdict[str, _Sizes] = defaultdict(_Sizes)
        self.num_connections = 0
        self.cut: Counter[str] = Counter()

    def answered(
        self,
        method: str,
        handler: str,
        status: int,
        duration_s: float,
        in_bytes: int,
        out_bytes: int,
    ) -> None:
        """A request is over. status 0: the client left before its answer."""
        method = method if method in _METHODS else "other"
        self._requests[method, handler, f"{status // 100}xx"] += 1
        self._seconds[method, handler].observe(duration_s)
        self._highr.observe(duration_s)
        self._in[handler].add(in_bytes)
        self._out[handler].add(out_bytes)

    def collect(self) -> Iterator[Metric]:
        """All families."""
        requests = CounterMetricFamily(
            *self._named(names.HTTP_REQUESTS), labels=("method", "handler", "status")
        )
        for key, count in sorted(self._requests.items()):
            requests.add_metric(key, count)
        yield requests
        seconds = HistogramMetricFamily(
            *self._named(names.HTTP_SECONDS), labels=("method", "handler")
        )
        for route, histogram in sorted(self._seconds.items()):
            seconds.add_metric(route, *bucket_sums(histogram))
        yield seconds
        highr = HistogramMetricFamily(*self._named(names.HTTP_HIGHR), labels=())
        highr.add_metric((), *bucket_sums(self._highr))
        yield highr
        yield self._summary(names.HTTP_IN, self._in)
        yield self._summary(names.HTTP_OUT, self._out)
        connections = names.CONNECTIONS
        yield GaugeMetricFamily(
            connections.full("octavo"), connections.help, value=self.num_connections
        )
        cut = CounterMetricFamily(names.CUT.full("octavo"), names.CUT.help, labels=("reason",))
        for reason, count in sorted(self.cut.items()):
            cut.add_metric((reason,), count)
        yield cut

    def _named(self, name: Name) -> tuple[str, str]:
        return self._prefix + name.name, name.help

    def _summary(self, name: Name, sizes: dict[str, _Sizes]) -> Metric:
        family = SummaryMetricFamily(*self._named(name), labels=("handler",))
        for handler, size in sorted(sizes.items()):
            family.add_metric((handler,), size.count, size.sum_bytes)
        return family

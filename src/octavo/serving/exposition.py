"""Histograms as Prometheus wants them."""

from __future__ import annotations

from octavo.engine.histogram import Histogram


def bucket_sums(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """(bound, observations up to it) for every bucket, and the sum, as Prometheus wants them."""
    buckets, running = [], 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        running += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(running)))
    return buckets, histogram.total

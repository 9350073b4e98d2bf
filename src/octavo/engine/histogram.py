"""Observations counted in buckets: cheap to add to, plain data to send and to show."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Histogram:
    """bounds: upper bounds of the buckets, rising, each included. counts: observations of each
    bucket and, last, of those above every bound. total: their sum. Not for several threads."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Self:
        """A snapshot that further observations do not change."""
        return type(self)(self.bounds, list(self.counts), self.total)

    @property
    def count(self) -> int:
        """Observations in all."""
        return sum(self.counts)

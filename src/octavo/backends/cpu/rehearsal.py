"""How long a model's steps will take, without its weights.

The model's own program runs on stand-ins: numbers of no meaning in as much memory as a step reads,
or as much as says what memory costs. The matrices of a larger model share it. Rows on such weights
choose the same few experts, though, so a mixture's products are timed once more by themselves, for
experts that are chosen evenly, and the slower of both counts.
"""

from __future__ import annotations

import statistics
from collections import Counter

from msgspec import Struct

from octavo import _native
from octavo.backends.base import Rehearsal, Step
from octavo.backends.cpu.executable import CpuExecutable
from octavo.decoding.batch import SamplingBatch

EXPERT_REGIONS = ("gate_up_experts", "down_experts")
MOST_FOOTPRINT = 1 << 29
"""Bytes of stand-ins; beyond the caches, and little beside a large model."""


class ExpertShape(Struct, frozen=True):
    """A product of a mixture: so many matrices beside each other, of which each row meets
    `chosen`."""

    ggml_type: int
    n: int
    k: int
    as_float: bool
    experts: int
    chosen: int

    def shares(self, rows: int) -> tuple[float, int]:
        """How many of the matrices are met, and by how many rows each, where rows choose evenly:
        E (1 - (1 - k / E)^rows) of E."""
        met = self.experts * (1 - (1 - self.chosen / self.experts) ** rows)
        return met, max(1, round(rows * self.chosen / met))


class CpuRehearsal(Rehearsal):
    """A CpuExecutable on stand-ins. One thread drives it."""

    def __init__(self, executable: CpuExecutable, mixtures: list[ExpertShape]) -> None:
        self.executable: CpuExecutable = executable
        self._mixtures = Counter(mixtures)
        self._footprint = min(max(executable.streamed_bytes, 1), MOST_FOOTPRINT)
        self._timed: dict[tuple[ExpertShape, int, bool], float] = {}

    def step_s(self, step: Step, sampling: SamplingBatch | None, repeat: int) -> float:
        runs = sorted((self._regions(step, sampling) for _ in range(repeat)), key=_total)
        regions = runs[repeat // 2]
        experts = sum(seconds for name, seconds in regions if name in EXPERT_REGIONS)
        return _total(regions) + max(0.0, self._mixtures_s(step) - experts)

    def _regions(self, step: Step, sampling: SamplingBatch | None) -> list[tuple[str, float]]:
        with self.executable.profile() as regions:
            if sampling is None:
                self.executable.forward(step)
            else:
                self.executable.step(step, sampling)
        return regions

    def _mixtures_s(self, step: Step) -> float:
        products = self.executable.products
        bf16 = products == "bf16" or (products == "mixed" and step.of_prompts)
        seconds = 0.0
        for shape, count in self._mixtures.items():
            met, rows = shape.shares(len(step.tokens))
            seconds += count * met * self._product_s(shape, rows, bf16)
        return seconds

    def _product_s(self, shape: ExpertShape, rows: int, bf16: bool) -> float:
        """The median of some runs through the whole footprint."""
        if (shape, rows, bf16) not in self._timed:
            size = _native.packed_bytes(shape.ggml_type, shape.n, shape.k)
            repeat = max(5, min(64, 2 * self._footprint // size, (1 << 33) // (rows * size)))
            times = _native.measure_linear(
                shape.ggml_type,
                shape.n,
                shape.k,
                rows,
                self.executable.num_threads,
                self._footprint,
                repeat,
                shape.as_float,
                bf16,
            )
            self._timed[shape, rows, bf16] = statistics.median(times)
        return self._timed[shape, rows, bf16]


def _total(regions: list[tuple[str, float]]) -> float:
    return sum(seconds for _, seconds in regions)

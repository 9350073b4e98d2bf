"""How long a model's steps will take, without its weights.

The model's own program runs on weights of zeros, which take no memory: that times everything but
the products, and what the products compute. Zeros come from a cache, though, where real weights
come from memory. So each shape of product is timed once more by itself, on random weights spread
over as much memory as the model reads in a step, and the slower of both counts.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass

from octavo import _native
from octavo.backends.base import Rehearsal, Step
from octavo.backends.cpu.executable import CpuExecutable
from octavo.decoding.batch import SamplingBatch

PRODUCT_REGIONS = ("linear", "gated", "gate_up_experts", "down_experts")
MOST_FOOTPRINT = 1 << 29
"""Bytes of random weights; beyond the caches, and little beside a large model."""


@dataclass(frozen=True)
class ProductShape:
    """A matrix product of the program. of_logits: its rows are the rows wanted, not the tokens.
    experts: so many matrices lie beside each other, of which each row meets `chosen`."""

    ggml_type: int
    n: int
    k: int
    as_float: bool
    of_logits: bool
    experts: int = 1
    chosen: int = 1

    def shares(self, rows: int) -> tuple[float, int]:
        """How many of the matrices are met, and by how many rows each, where rows choose evenly:
        E (1 - (1 - k / E)^rows) of E."""
        met = self.experts * (1 - (1 - self.chosen / self.experts) ** rows)
        return met, max(1, round(rows * self.chosen / met))


class CpuRehearsal(Rehearsal):
    """A CpuExecutable on zeros. One thread drives it."""

    def __init__(self, executable: CpuExecutable, products: list[ProductShape]) -> None:
        self.executable: CpuExecutable = executable
        self._products = Counter(products)
        self._footprint = min(max(executable.streamed_bytes, 1), MOST_FOOTPRINT)
        self._timed: dict[tuple[ProductShape, int], float] = {}

    def step_s(self, step: Step, sampling: SamplingBatch | None, repeat: int) -> float:
        regions = min((self._regions(step, sampling) for _ in range(repeat)), key=_total)
        on_zeros = sum(seconds for name, seconds in regions if name in PRODUCT_REGIONS)
        from_memory = self._products_s(len(step.tokens), len(step.logit_rows))
        return _total(regions) + max(0.0, from_memory - on_zeros)

    def _regions(self, step: Step, sampling: SamplingBatch | None) -> list[tuple[str, float]]:
        with self.executable.profile() as regions:
            if sampling is None:
                self.executable.forward(step)
            else:
                self.executable.step(step, sampling)
        return regions

    def _products_s(self, tokens: int, logits: int) -> float:
        seconds = 0.0
        for shape, count in self._products.items():
            met, rows = shape.shares(logits if shape.of_logits else tokens)
            seconds += count * met * self._product_s(shape, rows)
        return seconds

    def _product_s(self, shape: ProductShape, rows: int) -> float:
        """The median of some runs through the whole footprint."""
        if (shape, rows) not in self._timed:
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
            )
            self._timed[shape, rows] = statistics.median(times)
        return self._timed[shape, rows]


def _total(regions: list[tuple[str, float]]) -> float:
    return sum(seconds for _, seconds in regions)

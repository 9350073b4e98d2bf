"""Which tensor gets how many bits: the least total error within a budget of bytes.

For every matrix of the layers and every format, the error of its outputs on some inputs is
measured, relative to the outputs' own size. Choosing one format for each is a knapsack; it is
solved by going up each tensor's lower convex hull in the order of error saved a byte, which is
optimal up to the last step taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.base import Floats
from octavo.errors import InvalidParameterError
from octavo.quantize.recipe import fitting
from octavo.quantize.rounding import expanded, rounded
from octavo.weights import Scheme

LADDER = ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
SMALL_LADDER = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
"""For rows that K-quants cannot hold."""


@dataclass(frozen=True)
class Choice:
    """One format of one tensor."""

    scheme: str
    size_bytes: int
    error: float


def ladder(columns: int) -> tuple[Scheme, ...]:
    """The formats to choose from, by size."""
    names = LADDER if columns % 256 == 0 else SMALL_LADDER
    return tuple(dict.fromkeys(fitting(name, columns) for name in names))


def measure(
    weight: Floats, x: Floats, importance: Floats, schemes: Sequence[Scheme], threads: int
) -> list[float]:
    """Squared error of x @ weight^T by each scheme over the squared size of it.

    weight [N, K] may be some rows of the tensor, x [T, K] some of its inputs.
    """
    whole = float(np.square(x @ weight.T).sum(dtype=np.float64)) or 1.0
    errors = []
    for scheme in schemes:
        off = expanded(rounded(weight, scheme, importance, threads), weight.shape, scheme) - weight
        errors.append(float(np.square(x @ off.T).sum(dtype=np.float64)) / whole)
    return errors


def choose(tensors: Mapping[str, Sequence[Choice]], budget_bytes: int) -> dict[str, str]:
    """A scheme for each tensor, of at most budget_bytes in all.

    Raises InvalidParameterError where even the smallest formats are more.
    """
    hulls = {name: hull(choices) for name, choices in tensors.items()}
    taken = dict.fromkeys(hulls, 0)
    size = sum(steps[0].size_bytes for steps in hulls.values())
    if size > budget_bytes:
        raise InvalidParameterError(
            "target_bits",
            f"the smallest formats take {size:,} bytes in these tensors, the target leaves"
            f" {budget_bytes:,}",
        )
    queue = [_gain(name, steps, 0) for name, steps in hulls.items() if len(steps) > 1]
    heapq.heapify(queue)
    while queue:
        _, name, step = heapq.heappop(queue)
        steps = hulls[name]
        more = steps[step + 1].size_bytes - steps[step].size_bytes
        if size + more > budget_bytes:
            continue
        size += more
        taken[name] = step + 1
        if step + 2 < len(steps):
            heapq.heappush(queue, _gain(name, steps, step + 1))
    return {name: hulls[name][step].scheme for name, step in taken.items()}


def hull(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that are worth taking at some price of a byte, by size."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.size_bytes, c.error)):
        if kept and choice.error >= kept[-1].error:
            continue
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-1], choice):
            kept.pop()
        kept.append(choice)
    return kept


def _slope(a: Choice, b: Choice) -> float:
    """Error saved a byte."""
    return (a.error - b.error) / (b.size_bytes - a.size_bytes)


def _gain(name: str, steps: Sequence[Choice], step: int) -> tuple[float, str, int]:
    return -_slope(steps[step], steps[step + 1]), name, step

"""What adapters do to products: gain (y + scale (x A^T) B^T), for the rows that ask for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats, Step
from octavo.errors import BackendError
from octavo.weights import Tensor, dequantize
from octavo.weights.adapter import Adapter, LowRank


class AdapterTable:
    """Loaded adapters by number."""

    def __init__(self, max_rank: int) -> None:
        self._max_rank = max_rank
        self._loaded: dict[int, Adapter] = {}

    def load(self, number: int, adapter: Adapter) -> None:
        """Raises BackendError if the rank is above what was asked for, or the number taken."""
        if adapter.max_rank > self._max_rank or number in self._loaded:
            got = f"number {number}, rank {adapter.max_rank}"
            raise BackendError(
                f"reference: {adapter.path}: got {got}, expected a new number and a rank of at most"
                f" {self._max_rank}"
            )
        self._loaded[number] = adapter

    def unload(self, number: int) -> None:
        """Forget one."""
        self._loaded.pop(number, None)

    def add(self, y: Floats, x: Floats, weight: str, step: Step, *, of_logits: bool) -> Floats:
        """y with what adapters change in the product of x and `weight`. of_logits: rows are those
        of logits, not of tokens."""
        for number, rows in self._rows(step, of_logits):
            change = self._of(number).changes.get(weight)
            if change is not None:
                y[rows] = changed(y[rows], x[rows], change)
        return y

    def _of(self, number: int) -> Adapter:
        if number not in self._loaded:
            raise BackendError(f"step: adapters: got {number}, which is not loaded")
        return self._loaded[number]

    def _rows(self, step: Step, of_logits: bool) -> list[tuple[int, NDArray[np.intp]]]:
        """The rows of each adapter of the step."""
        if step.adapters is None:
            return []
        of_token = np.repeat(step.adapters, np.diff(step.query_start))
        of_row = of_token[step.logit_rows] if of_logits else of_token
        numbers = [int(n) for n in np.unique(of_row) if n >= 0]
        return [(number, np.flatnonzero(of_row == number)) for number in numbers]


def changed(y: Floats, x: Floats, change: LowRank) -> Floats:
    """What becomes of y = x W^T."""
    if change.down is None:
        replaced: Floats = x @ dequantize(change.up).T
        return replaced
    y = y + low_rank(x, change.down, change)
    return y if change.gain is None else y * dequantize(change.gain)


def low_rank(x: Floats, a: Tensor, change: LowRank) -> Floats:
    """scale (x A^T) B^T."""
    down, up = dequantize(a), dequantize(change.up)
    inner: Floats = x @ down.T
    scaled: Floats = inner * np.float32(change.scale)
    y: Floats = scaled @ up.T
    return y

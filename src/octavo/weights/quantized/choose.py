"""Which native scheme holds integers of a range exactly, in which order of columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.weights.quantized.origins import (
    CODE_TABLES,
    GROUP,
    RANGES,
    ZERO_CODES,
    Floats,
    QuantizedOrigin,
)
from octavo.weights.scheme import MADE_SCHEMES, SCHEMES, Scheme
from octavo.weights.tensor import DerivedTensor, GroupedTensor, Origin, Tensor

_SCHEMES = SCHEMES | MADE_SCHEMES
HALF = SCHEMES["F16"]
"""Where no block fits: 16 bits a weight."""
_FLOAT8 = {
    "F8_E4M3": ((MADE_SCHEMES["E4M3"], 128), (MADE_SCHEMES["E4M3_32"], GROUP)),
    "F8_E5M2": ((MADE_SCHEMES["E5M2"], GROUP),),
}
"""Schemes of 8-bit floats, smallest first, and how many columns share a scale in their panels."""


def scheme_for(low: int, high: int, group: int, columns: int, bits: int = 8) -> Scheme:
    """The smallest scheme for integers of `bits` bits, from low to high less their zero points,
    with one scale for `group` columns."""
    if columns % GROUP or group % GROUP:
        return HALF
    for name, (least, most) in RANGES.items():
        zeros = ZERO_CODES.get(name)
        fits = zeros is None or (bits <= zeros.bits and group % zeros.run == 0)
        if fits and least <= low and high <= most:
            return _SCHEMES[name]
    return HALF


_FILED = {"Q4_Z": "Q5_0", "Q4_Z128": "Q5_0"}


def as_filed(tensor: Tensor) -> Tensor:
    """The tensor with a scheme of GGUF files that holds the same numbers, where there is one."""
    name = _FILED.get(tensor.scheme.name)
    origin = tensor.origin if isinstance(tensor, DerivedTensor) else None
    if name is None or not isinstance(origin, QuantizedOrigin):
        return tensor
    return DerivedTensor(tensor.name, tensor.shape, SCHEMES[name], origin, tensor.home)


def float8_scheme(dtype: str, columns: int, block: tuple[int, int] | None) -> Scheme:
    """For 8-bit floats with scales of blocks of rows and columns; None: of rows or of the whole."""
    for scheme, run in _FLOAT8[dtype]:
        fits = block is None or block[1] % run == 0 or block[1] >= columns
        if fits and columns % GROUP == 0:
            return scheme
    return HALF


def code_scheme(table: Floats, run: int, columns: int) -> Scheme:
    """For 4-bit codes into a table, with one scale for `run` numbers along the rows."""
    if run % GROUP or columns % GROUP:
        return HALF
    for name, known in CODE_TABLES.items():
        if np.allclose(table, known, rtol=0, atol=1e-5):
            return MADE_SCHEMES[name]
    return HALF


def order_by_group(spread: NDArray[np.int64], group: int) -> NDArray[np.int32] | None:
    """The columns, those of each group together; None unless every group has `group` of them."""
    if len(spread) % group or (np.bincount(spread, minlength=len(spread) // group) != group).any():
        return None
    return np.argsort(spread, kind="stable").astype(np.int32)


def grouped(
    name: str,
    shape: tuple[int, int],
    scheme: Scheme,
    origin: Callable[[NDArray[np.int32] | None], Origin],
    spread: NDArray[np.int64],
    group: int,
) -> DerivedTensor:
    """A weight whose groups are spread over the row. scheme: what would hold it if they were not.
    origin: the numbers with the columns in an order, or as they are."""
    order = order_by_group(spread, group)
    if order is None or scheme is HALF:
        return DerivedTensor(name, shape, HALF, origin(None))
    by_group = DerivedTensor(name, shape, scheme, origin(order))
    return GroupedTensor(name, shape, HALF, origin(None), by_group, order)


def integer_range(bits: int, symmetric: bool, most_zero: int) -> tuple[int, int]:
    """What a number of `bits` bits is less its zero point: half the range, or 0 to most_zero."""
    most = (1 << bits) - 1
    half = 1 << (bits - 1)
    return (-half, most - half) if symmetric else (-most_zero, most)

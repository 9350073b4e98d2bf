"""Matrices as blocks of a format, each number rounded to the nearest; scales by a search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo._native import quantize_blocks
from octavo.errors import FormatError
from octavo.records import replace
from octavo.weights import SCHEMES, Scheme, Tensor, dequantize

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

WRITTEN = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
"""Formats that are written by searching scales; floats are written as they are."""


def rounded(weight: Floats, scheme: Scheme, importance: Floats | None, threads: int) -> Bytes:
    """The blocks [N, row bytes] of weight [N, K].

    importance: what a squared error in a column costs, [K], above 0; None where all are alike.
    Raises FormatError for numbers that are not finite.
    """
    if not np.isfinite(weight).all():
        raise FormatError("quantize: a weight holds numbers that are not finite")
    rows, columns = weight.shape
    out = np.empty((rows, columns // scheme.block_elems * scheme.block_bytes), np.uint8)
    weight = np.ascontiguousarray(weight, np.float32)
    quantize_blocks(weight, importance, scheme.ggml_type, out, threads)
    return out


WIDE = replace(SCHEMES["Q4_0"], ggml_type=1002, block_elems=128, block_bytes=72)
"""Q4_0 with one scale for four blocks: the grid of groups of 128."""


def expanded(blocks: Bytes, shape: tuple[int, ...], scheme: Scheme) -> Floats:
    """What readers make of blocks."""
    return dequantize(Tensor("", shape, SCHEMES[scheme.name], blocks.reshape(-1)))


def scheme_named(name: str) -> Scheme:
    """A scheme by its name in any case."""
    return SCHEMES[name.upper()]

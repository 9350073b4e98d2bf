"""GPTQ (Frantar et al. 2022): each column's rounding error is made good by the columns after it.

Scales are found block by block on the numbers as they then are, so that any block format can be
the grid. Columns go in their own order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo._native import gptq_blocks
from octavo.quantize.rounding import Bytes, Floats
from octavo.weights import Scheme

SLAB = 128
"""Columns whose errors are gathered before the rest of the matrix is updated."""
DAMPING = 0.01
"""Of the mean of the diagonal, added to it."""
LEAF = 128


def inverse_factor(hessian: Floats, damping: float = DAMPING) -> Floats:
    """The upper triangular U with U^T U = (hessian + damping)^-1, [K, K].

    The Cholesky factor of the matrix with rows and columns reversed, reversed again, is upper
    triangular; its inverse is U. That takes half of what inverting and factoring would.
    """
    damped = hessian.astype(np.float64)
    mean = float(np.trace(damped)) / len(damped)
    damped[np.diag_indices_from(damped)] += damping * mean if mean > 0 else 1.0
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    upper = np.asarray(lower[::-1, ::-1], np.float64)
    return _upper_inverse(upper).astype(np.float32)


def _upper_inverse(upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """By halves: products do the work."""
    size = len(upper)
    if size <= LEAF:
        return np.triu(np.linalg.inv(upper))
    half = size // 2
    out = np.zeros_like(upper)
    first, last = _upper_inverse(upper[:half, :half]), _upper_inverse(upper[half:, half:])
    out[:half, :half], out[half:, half:] = first, last
    out[:half, half:] = -(first @ upper[:half, half:]) @ last
    return out


def gptq(weight: Floats, factor: Floats, scheme: Scheme, threads: int) -> Bytes:
    """The blocks [N, row bytes] of weight [N, K]. factor: `inverse_factor` of the inputs' Hessian.

    A scale counts an error in a column by what the columns after it cannot make good: the inverse
    square of the factor's diagonal.
    """
    left = np.array(weight, np.float32, order="C")
    rows, columns = left.shape
    block, size = scheme.block_elems, scheme.block_bytes
    out = np.empty((rows, columns // block * size), np.uint8)
    importance = _importance(factor)
    slab = max(SLAB, block)
    for begin in range(0, columns, slab):
        end = min(begin + slab, columns)
        errors = np.empty((rows, end - begin), np.float32)
        for at in range(begin, end, block):
            own = np.ascontiguousarray(factor[at : at + block, at : at + block])
            error = np.empty((rows, block), np.float32)
            blocks = np.empty((rows, size), np.uint8)
            part = np.ascontiguousarray(importance[at : at + block])
            gptq_blocks(left, at, own, part, scheme.ggml_type, error, blocks, threads)
            out[:, at // block * size : (at // block + 1) * size] = blocks
            left[:, at + block : end] -= error @ factor[at : at + block, at + block : end]
            errors[:, at - begin : at - begin + block] = error
        left[:, end:] -= errors @ factor[begin:end, end:]
    return out


def _importance(factor: Floats) -> Floats:
    diagonal = np.diagonal(factor).astype(np.float64)
    cost = 1.0 / (diagonal * diagonal)
    result: Floats = (cost / cost.mean()).astype(np.float32)
    return result

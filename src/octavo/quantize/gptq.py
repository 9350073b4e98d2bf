"""GPTQ (Frantar et al. 2022): each column's rounding error is made good by the columns after it.

Scales are found block by block on the numbers as they then are, so that any block format can be
the grid. The arithmetic is that of LDLQ (Chee et al. 2023, who show that the two are one): with
the inputs' second moments H = R R^T, R upper triangular, column k is rounded at
w[k] + sum over j < k of (w[j] - rounded[j]) R[j, k] / R[k, k]. It needs no inverse of H.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo._native import gptq_blocks
from octavo.quantize.inputs import apart
from octavo.quantize.rounding import Bytes, Floats, expanded
from octavo.weights import Scheme

SLAB = 256
"""Columns that take the errors of all before them in one product."""
DAMPINGS = (0.1, 0.3, 1.0)
"""Tried: parts of the mean of the diagonal, added to it. As many inputs as a weight has columns
leave most of their second moments to chance; following those makes the product worse on any other
text. So the one is taken that does best on inputs left out."""
SAMPLE, COLUMNS = 64, 2048
"""About how many rows of all weights that read an input, and how many columns this is tried on."""
PANEL, LEAF = 512, 64


def upper_factor(hessian: Floats, damping: float) -> Floats:
    """The upper triangular R with R R^T = hessian + damping, [K, K].

    Panels from the last to the first, each by one product with those behind it.
    """
    size = len(hessian)
    mean = float(np.trace(hessian, dtype=np.float64)) / size
    out = np.zeros_like(hessian, np.float32)
    for stop in range(size, 0, -PANEL):
        start = max(stop - PANEL, 0)
        panel = hessian[:stop, start:stop] - out[:stop, stop:] @ out[start:stop, stop:].T
        own = panel[start:].astype(np.float64)
        own[np.diag_indices_from(own)] += damping * mean if mean > 0 else 1.0
        factor = _upper(own)
        out[start:stop, start:stop] = factor
        out[:start, start:stop] = panel[:start] @ upper_inverse(factor).T.astype(np.float32)
    return out


def _upper(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """R with R R^T = matrix: the usual factor with rows and columns reversed."""
    size = len(matrix)
    if size <= LEAF:
        return np.ascontiguousarray(np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1])
    half = size // 2
    out = np.zeros_like(matrix)
    last = _upper(matrix[half:, half:])
    out[half:, half:] = last
    out[:half, half:] = matrix[:half, half:] @ upper_inverse(last).T
    out[:half, :half] = _upper(matrix[:half, :half] - out[:half, half:] @ out[:half, half:].T)
    return out


def upper_inverse(upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """By halves: products do the work."""
    size = len(upper)
    if size <= LEAF:
        return np.triu(np.linalg.inv(upper))
    half = size // 2
    out = np.zeros_like(upper)
    first, last = upper_inverse(upper[:half, :half]), upper_inverse(upper[half:, half:])
    out[:half, :half], out[half:, half:] = first, last
    out[:half, half:] = -(first @ upper[:half, half:]) @ last
    return out


def moments_factor(
    x: Floats, window: int, weights: Sequence[Floats], scheme: Scheme, threads: int
) -> Floats:
    """`upper_factor` of the second moments of inputs x [T, K], windows of `window` tokens, with
    the damping that is best for `weights`, some rows of those it is for, on windows left out."""
    return upper_factor(x.T @ x, best_damping(x, window, weights, scheme, threads))


def best_damping(
    x: Floats, window: int, weights: Sequence[Floats], scheme: Scheme, threads: int
) -> float:
    """One of DAMPINGS. Of many columns some are tried, with as much fewer tokens: it is the ratio
    of the two that damping depends on."""
    columns, tokens = _some_columns(x.shape[1], scheme.block_elems)
    rest, left = (part[:, columns] for part in apart(x, window))
    rest = rest[::tokens]
    hessian = rest.T @ rest
    some = [np.ascontiguousarray(weight[:, columns]) for weight in weights]
    sizes = [float(np.square(left @ w.T).sum(dtype=np.float64)) or 1.0 for w in some]

    def loss(damping: float) -> float:
        factor, total = upper_factor(hessian, damping), 0.0
        for w, size in zip(some, sizes, strict=True):
            off = expanded(gptq(w, factor, scheme, threads), w.shape, scheme) - w
            total += float(np.square(left @ off.T).sum(dtype=np.float64)) / size
        return total

    return min(DAMPINGS, key=loss)


def _some_columns(columns: int, block: int) -> tuple[NDArray[np.intp], int]:
    """Whole blocks, one of every so many."""
    blocks = np.arange(columns).reshape(-1, block)
    step = max(1, columns // COLUMNS)
    return blocks[::step].reshape(-1), step


def gptq(weight: Floats, factor: Floats, scheme: Scheme, threads: int) -> Bytes:
    """The blocks [N, row bytes] of weight [N, K]. factor: `upper_factor` of the inputs' moments.

    A scale counts an error in a column by what the columns after it cannot make good: the square
    of the factor's diagonal.
    """
    (rows, columns), block, size = weight.shape, scheme.block_elems, scheme.block_bytes
    out = np.empty((rows, columns // block * size), np.uint8)
    errors = np.zeros((rows, columns), np.float32)
    scrap, blocks = np.empty((rows, block), np.float32), np.empty((rows, size), np.uint8)
    importance = _importance(factor)
    slab = max(SLAB, block)
    for begin in range(0, columns, slab):
        due = errors[:, :begin] @ factor[:begin, begin : begin + slab]
        for at in range(begin, min(begin + slab, columns), block):
            own, here = slice(at, at + block), slice(at - begin, at - begin + block)
            taken = due[:, here] + errors[:, begin:at] @ factor[begin:at, own]
            inverse = upper_inverse(factor[own, own].astype(np.float64)).astype(np.float32)
            numbers = (weight[:, own] + taken @ inverse).astype(np.float32)
            part = np.ascontiguousarray(importance[own])
            gptq_blocks(numbers, 0, inverse, part, scheme.ggml_type, scrap, blocks, threads)
            out[:, at // block * size : (at // block + 1) * size] = blocks
            errors[:, own] = weight[:, own] - expanded(blocks, (rows, block), scheme)
    return out


def _importance(factor: Floats) -> Floats:
    cost = np.square(np.diagonal(factor).astype(np.float64))
    result: Floats = (cost / cost.mean()).astype(np.float32)
    return result

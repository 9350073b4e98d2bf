"""What an int4 KV cache keeps of keys and values, in NumPy and float32: the twin of
native/runtime/attention_int4.inl, against which the kernels are held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
BLOCK, GROUP = 32, 32


def padded(x: Array) -> Array:
    """The last dimension to a multiple of 32, with zeros."""
    more = -x.shape[-1] % BLOCK
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, more)])


def turned(x: Array) -> Array:
    """The last dimension times a Hadamard matrix over its root: its own inverse."""
    d = x.shape[-1]
    size = d & -d
    y, half = x.reshape(-1, size), 1
    while half < size:
        pairs = y.reshape(len(y), -1, 2, half)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        y = np.stack([a + b, a - b], axis=2).reshape(len(y), size)
        half *= 2
    return (y / np.float32(np.sqrt(size))).reshape(x.shape).astype(np.float32)


def half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def rounded(x: Array, group: int) -> Array:
    """Each run of `group` numbers in 16 steps from its least to its largest."""
    runs = x.reshape(*x.shape[:-1], -1, group)
    low, high = runs.min(axis=-1, keepdims=True), runs.max(axis=-1, keepdims=True)
    least, scale = half(low), half((high - low) / np.float32(15))
    codes = np.clip(np.rint((runs - least) / np.where(scale > 0, scale, 1)), 0, 15)
    return (codes * scale + least).reshape(x.shape).astype(np.float32)


def kept_keys(k: Array) -> Array:
    """k [length, heads, d] of one sequence as the cache keeps them, turned."""
    keys = turned(padded(k))
    anchors = half(keys[::BLOCK]).repeat(BLOCK, axis=0)[: len(keys)]
    length = (anchors * anchors).sum(axis=-1, keepdims=True)
    share = (keys * anchors).sum(axis=-1, keepdims=True) / np.where(length > 0, length, 1)
    share[::BLOCK] = 1
    base = half(share) * anchors
    return base + rounded(keys - base, GROUP)


def kept_values(v: Array) -> Array:
    """v [length, heads, d] likewise."""
    values = turned(padded(v))
    return rounded(values, values.shape[-1])

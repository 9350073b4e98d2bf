"""Numbers of a few bits: taking them out of words, and the small floats' values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

E2M1: NDArray[np.int8] = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8
)
"""Twice the value of each 4-bit float (OCP Microscaling Formats 1.0, section 5.3.3)."""


def _e4m3() -> NDArray[np.float32]:
    """OCP 8-bit floating point, E4M3: no infinities, NaN where all bits but the sign are set."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(
        exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7)
    )
    size[(code & 127) == 127] = np.nan
    return np.where(code & 128, -size, size).astype(np.float32)


E4M3: NDArray[np.float32] = _e4m3()
"""The value of each byte."""

E5M2: NDArray[np.float32] = (
    (np.arange(256).astype(np.uint16) << 8).view(np.float16).astype(np.float32)
)
"""OCP 8-bit floating point, E5M2: the value of each byte, which is the first of a float16."""


def bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def unpack_words(words: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """[..., W] words -> [..., W * (32 // bits)]: the lowest bits first, as many as go whole into a
    word."""
    count, mask = 32 // bits, (1 << bits) - 1
    unsigned = np.ascontiguousarray(words).view(np.uint32)
    out = np.empty((*words.shape, count), np.uint8)
    for i in range(count):
        out[..., i] = unsigned >> np.uint32(i * bits) & np.uint32(mask)
    return out.reshape(*words.shape[:-1], -1)


def unpack_stream(words: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """[..., W] words -> [..., 32 W // bits]: one stream of bits, numbers may cross words."""
    if 32 % bits == 0:
        return unpack_words(words, bits)
    as_bytes = np.ascontiguousarray(words).view(np.uint8)
    stream = np.unpackbits(as_bytes, axis=-1, bitorder="little")
    whole = stream.shape[-1] // bits * bits
    fields = stream[..., :whole].reshape(*words.shape[:-1], -1, bits)
    return np.packbits(fields, axis=-1, bitorder="little")[..., 0]


def nibbles(data: NDArray[np.uint8], *, high_first: bool = False) -> NDArray[np.uint8]:
    """[..., B] bytes -> [..., 2 B] numbers below 16."""
    out = np.empty((*data.shape, 2), np.uint8)
    out[..., int(high_first)] = data & 15
    out[..., 1 - int(high_first)] = data >> 4
    return out.reshape(*data.shape[:-1], -1)

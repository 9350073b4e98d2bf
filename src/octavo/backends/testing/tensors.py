"""Tensors made in memory: float ones from arrays, quantized ones from random bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.weights import SCHEMES, Tensor
from octavo.weights.scheme import MADE_SCHEMES, Scheme

_SCALE_FIELDS: dict[str, tuple[int, ...]] = {
    "Q4_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
    "NVFP4": (),
}
"""Byte offsets of the float16 numbers in a block, (0,) for types not listed. The rest of a block
may hold any bytes, but for MXFP4's exponents."""


def float_tensor(name: str, array: NDArray[np.float32]) -> Tensor:
    """An F32 tensor of an array's numbers."""
    data = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8)
    return Tensor(name, array.shape, SCHEMES["F32"], data)


def random_tensor(name: str, scheme: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """A tensor of any native scheme: scales from -0.1 to 0.1, all else random bytes."""
    rng = np.random.default_rng(seed)
    known = SCHEMES.get(scheme) or MADE_SCHEMES[scheme]
    if scheme in ("F32", "F16", "BF16"):
        data = _floats(scheme, rng.uniform(-1, 1, shape).astype(np.float32))
    elif scheme in MADE_SCHEMES:
        data = _made(rng, scheme, known, shape)
    else:
        blocks = known.num_bytes(shape) // known.block_bytes
        data = rng.integers(0, 256, (blocks, known.block_bytes), np.uint8)
        if scheme == "MXFP4":
            data[:, 0] = rng.integers(120, 126, blocks)
        for offset in _SCALE_FIELDS.get(scheme, (0,)):
            scales = rng.uniform(-0.1, 0.1, (blocks, 1)).astype(np.float16)
            data[:, offset : offset + 2] = scales.view(np.uint8)
    return Tensor(name, shape, known, np.ascontiguousarray(data).reshape(-1))


def _made(
    rng: np.random.Generator, name: str, known: Scheme, shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Blocks of any codes that are numbers, with a scale and a zero point for the whole row."""
    data = rng.integers(0, 256, (*shape[:-1], shape[-1] // 32, known.block_bytes), np.uint8)
    wide = name in ("E4M3", "E4M3_32", "E5M2", "NVFP4_D")
    largest = 1e-3 if wide else 0.1
    scales = rng.uniform(-largest, largest, (*shape[:-1], 1, 1))
    head = scales.astype(np.float32 if wide else np.float16).view(np.uint8)
    if name.startswith("E4M3"):
        data[data & 127 == 127] = 0x7E
    elif name == "E5M2":
        data &= 0xBB  # of all exponents to 14: below 1
    elif name == "NVFP4_D":
        data[..., 4:6] %= 0x7F
    elif name not in ("NF4", "FP4"):
        size = 1 if name == "Q4_Z" else 2
        zeros = rng.integers(0, 17, scales.shape).astype(f"<i{size}").view(np.uint8)
        head = np.concatenate([head, zeros], axis=-1)
    data[..., : head.shape[-1]] = head
    return data


def _floats(scheme: str, array: NDArray[np.float32]) -> NDArray[np.uint8]:
    if scheme == "BF16":
        return (array.reshape(-1).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return array.reshape(-1).astype(np.float16 if scheme == "F16" else np.float32).view(np.uint8)

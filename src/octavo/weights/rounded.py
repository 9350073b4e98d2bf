"""Float weights held as int8: rounded when they are packed, a quarter of float32's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.weights.expand import dequantize
from octavo.weights.scheme import SCHEMES, Scheme
from octavo.weights.tensor import DerivedTensor, Tensor

INT8 = SCHEMES["Q8_0"]
"""Blocks of 32 with a half-precision scale."""
_FLOATS = frozenset({"F32", "F16", "BF16"})
_KEPT = ("ffn_gate_inp.", "cls.")
"""Small matrices whose numbers decide much: an expert's router, a classifier's head."""


def as_int8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with every float matrix of whole blocks as int8. Others stay as they are."""
    return {name: _rounded(tensor) if _fits(tensor) else tensor for name, tensor in tensors.items()}


def _fits(tensor: Tensor) -> bool:
    is_float = tensor.scheme.name in _FLOATS and len(tensor.shape) >= 2
    return is_float and tensor.shape[-1] % 32 == 0 and not any(n in tensor.name for n in _KEPT)


def _rounded(tensor: Tensor) -> Tensor:
    return DerivedTensor(tensor.name, tensor.shape, INT8, _Floats(tensor))


@dataclass(frozen=True)
class _Floats:
    """A matrix of floats as the origin of an int8 one."""

    tensor: Tensor

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        """The file's own bytes."""
        return (self.tensor.data,)

    def values(self) -> NDArray[np.float32]:
        """The numbers as the file has them."""
        return dequantize(self.tensor)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        """Each block of 32 in steps of a 127th of its largest number, flat."""
        blocks = self.values().reshape(-1, 32)
        largest = np.maximum(blocks.max(axis=1), -blocks.min(axis=1))
        scales = (largest / 127).astype(np.float16)
        steps = scales.astype(np.float32)
        inverse = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
        out = np.empty((len(blocks), 34), np.uint8)
        out[:, :2] = scales[:, None].view(np.uint8)
        codes = np.rint(blocks * inverse[:, None]).clip(-127, 127)
        out[:, 2:] = codes.astype(np.int8).view(np.uint8)
        return out.reshape(-1)

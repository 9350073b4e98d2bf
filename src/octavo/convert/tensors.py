"""A tensor as the other format holds it: rows moved, matrices turned, norms with or without 1.

Bits are moved, never recomputed, except that a unit norm's weight gains or loses 1 in float32. What
that rounds away is kept beside it (`exact_key`), so that the way back gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.convert.conventions import Conventions
from octavo.models import ModelConfig
from octavo.models.fused import by_head_order
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize
from octavo.weights.tensor import float32_tensor

Bytes = NDArray[np.uint8]
FLOATS = ("F32", "F16", "BF16")
_BITS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}


def exact_key(name: str) -> str:
    """Metadata key of a unit norm's weights without the 1, float32, where float32 cannot add it
    and take it away again."""
    return f"octavo.exact.{name}"


@dataclass(frozen=True)
class Turner:
    """Both ways for one model."""

    config: ModelConfig
    conventions: Conventions

    def to_gguf(self, tensor: Tensor) -> Tensor:
        """A Hugging Face folder's tensor as GGUF holds it."""
        if self._is_unit_norm(tensor.name):
            return float32_tensor(tensor.name, dequantize(tensor) + np.float32(1))
        return self._moved(tensor, forward=True)

    def to_folder(self, tensor: Tensor, metadata: Mapping[str, object]) -> Tensor:
        """A GGUF file's tensor as a Hugging Face folder holds it."""
        if self._is_unit_norm(tensor.name):
            kept = metadata.get(exact_key(tensor.name))
            less = dequantize(tensor) - np.float32(1)
            exact = isinstance(kept, np.ndarray) and kept.shape == less.shape
            return float32_tensor(tensor.name, np.asarray(kept, np.float32) if exact else less)
        return self._moved(tensor, forward=False)

    def exact_norms(self, checkpoint: Checkpoint) -> dict[str, NDArray[np.float32]]:
        """What must be kept beside unit norms of a folder's tensors, by metadata key."""
        kept = {}
        for tensor in checkpoint.tensors.values():
            if self._is_unit_norm(tensor.name):
                values = dequantize(tensor)
                if not np.array_equal((values + np.float32(1)) - np.float32(1), values):
                    kept[exact_key(tensor.name)] = values
        return kept

    def turns(self, name: str) -> bool:
        """Whether a matrix is stored the other way round."""
        return name.endswith(tuple(f".{part}.weight" for part in self.conventions.turned))

    def _is_unit_norm(self, name: str) -> bool:
        return self.conventions.unit_norms and name.endswith("norm.weight")

    def _moved(self, tensor: Tensor, *, forward: bool) -> Tensor:
        if self.turns(tensor.name):
            return transposed(tensor)
        order = self._row_order(tensor)
        if order is None or len(order) != tensor.shape[0]:
            return tensor
        rows = tensor.data.reshape(len(order), -1)
        return _with_data(tensor, rows[order if forward else np.argsort(order)])

    def _row_order(self, tensor: Tensor) -> NDArray[np.intp] | None:
        """order[i]: the folder's row that is GGUF's row i; None where they are the same."""
        c, part = self.config, tensor.name.split(".")[-2]
        if self.conventions.pairs and part in ("attn_q", "attn_k"):
            rows = np.arange(tensor.shape[0]).reshape(-1, 2, c.head_dim // 2)
            return rows.swapaxes(1, 2).reshape(-1)
        if self.conventions.by_head and part == "attn_qkv":
            return by_head_order(c)
        return None


def transposed(tensor: Tensor) -> Tensor:
    """A matrix of floats turned, bit for bit; a quantized one is widened to float32 first."""
    if tensor.scheme.name not in FLOATS:
        tensor = float32_tensor(tensor.name, dequantize(tensor))
    bits = tensor.data.view(_BITS[tensor.scheme.name]).reshape(tensor.shape)
    data = np.ascontiguousarray(bits.T).reshape(-1).view(np.uint8)
    return Tensor(tensor.name, tensor.shape[::-1], tensor.scheme, data)


def as_scheme(tensor: Tensor, name: str) -> Tensor:
    """The tensor's numbers in another scheme: F32, F16, BF16 (round to nearest even) or Q8_0."""
    if tensor.scheme.name == name:
        return tensor
    values = dequantize(tensor)
    return Tensor(tensor.name, tensor.shape, SCHEMES[name], ENCODERS[name](values))


def _with_data(tensor: Tensor, data: Bytes) -> Tensor:
    return Tensor(tensor.name, tensor.shape, tensor.scheme, np.ascontiguousarray(data).reshape(-1))


def _float32_bytes(values: NDArray[np.float32]) -> Bytes:
    return np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)


def _float16_bytes(values: NDArray[np.float32]) -> Bytes:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).reshape(-1).view(np.uint8)


def _bfloat16_bytes(values: NDArray[np.float32]) -> Bytes:
    """Round to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, (bits >> 16) | 0x40, rounded).astype(np.uint16).view(np.uint8)


def _q8_0_bytes(values: NDArray[np.float32]) -> Bytes:
    """Blocks of 32: a float16 scale max|x| / 127, then quotients, rounded half away from zero."""
    blocks = values.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse[:, None]
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    head = scale.astype(np.float16).reshape(-1, 1).view(np.uint8)
    return np.concatenate([head, codes.view(np.uint8)], axis=1).reshape(-1)


ENCODERS = {
    "F32": _float32_bytes,
    "F16": _float16_bytes,
    "BF16": _bfloat16_bytes,
    "Q8_0": _q8_0_bytes,
}

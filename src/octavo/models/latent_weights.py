"""Weights of latent attention as its absorbed form wants them, from the way files store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.models.config import LatentConfig, ModelConfig
from octavo.weights import SCHEMES, dequantize
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import Checkpoint, DerivedTensor, Tensor

Rows = NDArray[np.intp]


def fit_latents(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Queries split into their plain and their rotated rows, the latent's projection from the
    key's, and kv_b into what takes queries to latents and what takes latents to values. Rows that
    do not lie together are gathered when they are packed. A tensor of other sizes is left as it is,
    for the graph's check to name."""
    m = config.latent
    assert m is not None
    found: dict[str, Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        layer, _, part = name.rpartition(".attn_")
        stem, _, kind = part.partition(".")
        parts = _parts(stem, kind, tensor, config.num_heads, m) if layer else None
        for own, made in parts or [(part, tensor)]:
            full = f"{layer}.attn_{own}" if layer else name
            found[full] = made if made is tensor else _named(made, full)
    return found


def _parts(
    stem: str, kind: str, tensor: Tensor, heads: int, m: LatentConfig
) -> list[tuple[str, Tensor]] | None:
    """What a layer's tensor becomes: names after "attn_", and tensors."""
    key, joined = m.nope_dim + m.rope_dim, m.nope_dim + m.value_dim
    if not tensor.shape:
        return None
    if stem in ("q", "q_b") and tensor.shape[0] == heads * key:
        plain, turned = _head_rows(heads, m.nope_dim, m.rope_dim)
        nope, rope = _gathered(tensor, plain), _gathered(tensor, turned)
        return [(f"{stem}_nope.{kind}", nope), (f"{stem}_rope.{kind}", rope)]
    if stem == "kv_a_mqa" and tensor.shape[0] == m.kv_rank + m.rope_dim:
        latent = tensor.rows("latent", 0, m.kv_rank)
        rope = tensor.rows("rope", m.kv_rank, m.kv_rank + m.rope_dim)
        return [(f"kv_a.{kind}", latent), (f"k_rope.{kind}", rope)]
    if stem == "kv_b" and tensor.shape == (heads * joined, m.kv_rank):
        _, values = _head_rows(heads, m.nope_dim, m.value_dim)
        down, up = _turned(tensor, heads, m), _gathered(tensor, values)
        return [(f"k_b.{kind}", down), (f"v_b.{kind}", up)]
    if stem in ("k_b", "v_b") and len(tensor.shape) == 3:
        flat = (tensor.shape[0] * tensor.shape[1], tensor.shape[2])
        return [(f"{stem}.{kind}", _flat(tensor, flat))]
    return None


def _named(tensor: Tensor, name: str) -> Tensor:
    if isinstance(tensor, DerivedTensor):
        return tensor.named(name)
    return Tensor(name, tensor.shape, tensor.scheme, tensor.data, tensor.home)


def _flat(tensor: Tensor, shape: tuple[int, int]) -> Tensor:
    return Tensor(tensor.name, shape, tensor.scheme, tensor.data, tensor.home)


def _head_rows(heads: int, first: int, second: int) -> tuple[Rows, Rows]:
    """Rows of each head's first and second part, where every head has the one after the other."""
    place = np.arange(heads * (first + second)).reshape(heads, first + second)
    return place[:, :first].reshape(-1), place[:, first:].reshape(-1)


def _gathered(tensor: Tensor, rows: Rows) -> Tensor:
    shape = (len(rows), *tensor.shape[1:])
    return DerivedTensor(tensor.name, shape, tensor.scheme, _Gathered(tensor, rows), tensor.home)


def _turned(tensor: Tensor, heads: int, m: LatentConfig) -> Tensor:
    """kv_b's key rows [H, nope, R] as [H * R, nope]. A quantized file's blocks lie along R: they
    become float32, or from 8-bit floats half precision."""
    float8 = tensor.scheme.name in ("E4M3", "E4M3_32", "E5M2")
    widened = SCHEMES["F16" if float8 else "F32"]
    scheme = tensor.scheme if tensor.scheme.block_elems == 1 else widened
    shape = (heads * m.kv_rank, m.nope_dim)
    origin = _Turned(tensor, heads, m.nope_dim)
    return DerivedTensor(tensor.name, shape, scheme, origin, tensor.home)


def _sources(tensor: Tensor) -> tuple[NDArray[np.uint8], ...]:
    return tensor.origin.sources if isinstance(tensor, DerivedTensor) else (tensor.data,)


class _Gathered(Struct, frozen=True, eq=False):
    """Some rows of a tensor, in their order."""

    whole: Tensor
    rows: Rows

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return _sources(self.whole)

    def values(self) -> NDArray[np.float32]:
        return dequantize(self.whole)[self.rows]

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        stored = self.whole.data.reshape(self.whole.shape[0], -1)
        return stored[self.rows].reshape(-1)


class _Turned(Struct, frozen=True, eq=False):
    """The first `rows` rows of each head of a tensor [H * n, R], turned: [H * R, rows]."""

    whole: Tensor
    heads: int
    rows: int

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return _sources(self.whole)

    def values(self) -> NDArray[np.float32]:
        return self._turn(dequantize(self.whole))

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if self.whole.scheme.block_elems > 1:
            width = np.float16 if scheme.block_bytes == 2 else np.float32
            return self.values().astype(width, copy=False).reshape(-1).view(np.uint8)
        numbers = self.whole.data.view(f"u{scheme.block_bytes}")
        return self._turn(numbers.reshape(self.whole.shape)).reshape(-1).view(np.uint8)

    def _turn(self, array: NDArray[Any]) -> NDArray[Any]:
        heads = array.reshape(self.heads, -1, array.shape[1])[:, : self.rows]
        return np.ascontiguousarray(heads.transpose(0, 2, 1)).reshape(-1, self.rows)

"""The paged KV cache as plain arrays, with every access checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats, Ints
from octavo.errors import BackendError
from octavo.graph import KvWriteAttrs, LatentWriteAttrs

DTYPES: dict[str, type[np.float32] | type[np.float16]] = {
    "auto": np.float32,
    "f32": np.float32,
    "f16": np.float16,
}
"""What the reference can store; bfloat16 is not a NumPy type."""


KvLayer: TypeAlias = KvWriteAttrs | LatentWriteAttrs


def numbers_per_token(layer: KvLayer) -> int:
    """What a layer's cache holds of a token."""
    if isinstance(layer, LatentWriteAttrs):
        return layer.latent_dim + layer.rope_dim
    return 2 * layer.num_kv_heads * layer.head_dim


class PagedKv:
    """K and V of every layer: [num_slots, kv_heads, head_dim]. Slots never written hold NaN. Of a
    layer with latents, K holds them and their keys as one head; there is no V."""

    def __init__(
        self, layers: Sequence[KvLayer], num_blocks: int, block_size: int, dtype: str
    ) -> None:
        self.block_size = block_size
        slots = num_blocks * block_size
        heads = [_heads_of(layer) for layer in layers]
        self._keys = [np.full((slots, n, d), np.nan, DTYPES[dtype]) for n, d, _ in heads]
        self._values = [np.full((slots, n, d), np.nan, DTYPES[dtype]) for n, _, d in heads]

    def write(self, layer: int, slots: Ints, k: Floats, v: Floats) -> None:
        """Store k and v [T, kv_heads * head_dim] at slots [T]."""
        shape = (len(slots), *self._keys[layer].shape[1:])
        self._keys[layer][slots] = k.reshape(shape)
        self._values[layer][slots] = v.reshape(shape)

    def write_latents(self, layer: int, slots: Ints, latent: Floats, key: Floats) -> None:
        """Store latent [T, R] and key [T, P] at slots [T]."""
        self._keys[layer][slots] = np.concatenate([latent, key], axis=1)[:, None]

    def read(self, layer: int, blocks: Ints, length: int) -> tuple[Floats, Floats]:
        """K and V of a sequence's first `length` tokens, each [length, kv_heads, head_dim]."""
        slots = self.slots(blocks, length)
        k, v = self._keys[layer][slots], self._values[layer][slots]
        if np.isnan(k[:, 0, 0]).any():
            position = int(np.flatnonzero(np.isnan(k[:, 0, 0]))[0])
            raise BackendError(
                f"reference: layer {layer} holds NaN at position {position} (slot "
                f"{slots[position]}): it was never written, or the model's numbers overflowed"
            )
        return k.astype(np.float32), v.astype(np.float32)

    def slots(self, blocks: Ints, length: int) -> NDArray[np.int64]:
        """Slots of positions 0 to length-1 by a row of the block table."""
        positions = np.arange(length)
        block = blocks[positions // self.block_size].astype(np.int64)
        return block * self.block_size + positions % self.block_size

    def copy_blocks(self, pairs: Ints) -> None:
        """Copy whole blocks, all sources read before any target is written."""
        offsets = np.arange(self.block_size)
        source, target = ((pairs[:, i, None] * self.block_size + offsets) for i in (0, 1))
        for store in (*self._keys, *self._values):
            store[target] = store[source]


def _heads_of(layer: KvLayer) -> tuple[int, int, int]:
    """KV heads, and the sizes of a key and of a value."""
    if isinstance(layer, LatentWriteAttrs):
        return 1, layer.latent_dim + layer.rope_dim, 0
    return layer.num_kv_heads, layer.head_dim, layer.head_dim

"""The paged KV cache as plain arrays, with every access checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats, Ints
from octavo.errors import BackendError
from octavo.graph import KvWriteAttrs

DTYPES: dict[str, type[np.float32] | type[np.float16]] = {
    "auto": np.float32,
    "f32": np.float32,
    "f16": np.float16,
}
"""What the reference can store; bfloat16 is not a NumPy type."""


class PagedKv:
    """K and V of every layer: [num_slots, kv_heads, head_dim]. Slots never written hold NaN."""

    def __init__(
        self, layers: Sequence[KvWriteAttrs], num_blocks: int, block_size: int, dtype: str
    ) -> None:
        self.block_size = block_size
        slots = num_blocks * block_size
        shapes = [(slots, layer.num_kv_heads, layer.head_dim) for layer in layers]
        self._keys = [np.full(shape, np.nan, DTYPES[dtype]) for shape in shapes]
        self._values = [np.full(shape, np.nan, DTYPES[dtype]) for shape in shapes]

    def write(self, layer: int, slots: Ints, k: Floats, v: Floats) -> None:
        """Store k and v [T, kv_heads * head_dim] at slots [T]."""
        shape = (len(slots), *self._keys[layer].shape[1:])
        self._keys[layer][slots] = k.reshape(shape)
        self._values[layer][slots] = v.reshape(shape)

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

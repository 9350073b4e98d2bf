"""Storage schemes: how a tensor's numbers lie in memory. Ids and block sizes are GGUF's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scheme:
    """block_elems elements take block_bytes bytes, along the innermost dimension.

    native: a backend may compute with it; otherwise it is known by name only.
    """

    name: str
    ggml_type: int
    block_elems: int
    block_bytes: int
    native: bool

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape; its innermost size must be a multiple of the block."""
        count = 1
        for size in shape:
            count *= size
        return count // self.block_elems * self.block_bytes

"""What a checkpoint is to the rest of the house: a lazy table of named tensors plus metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.weights.scheme import Scheme


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view of one tensor in a file. Nothing is copied before a backend packs it.

    shape: row-major, outermost first: a product's weight is (N, K); K is contiguous.
    data: uint8 view into the mapped file, `scheme.num_bytes(shape)` long, read-only.
    """

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    data: NDArray[np.uint8]


@dataclass
class Checkpoint:
    """A model on disk. `tensors` is keyed by canonical names, which are GGUF's names
    ("token_embd.weight", "blk.0.attn_q.weight"); a Hugging Face folder is mapped to them.

    format: "gguf" or "safetensors".
    metadata: GGUF key-values as plain Python values (long arrays as NumPy arrays or lists), or the
        parsed config.json for a Hugging Face folder.
    """

    path: Path
    format: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    file_bytes: int
    extras: dict[str, Any] = field(default_factory=dict)

    def release(self, tensor: Tensor) -> None:
        """Tell the OS that a tensor's mapped pages may go (MADV_DONTNEED); data stays readable.

        Called by a backend after packing a tensor, so that weights exist once in memory.
        """
        raise NotImplementedError

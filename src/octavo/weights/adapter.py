"""Low-rank adapters (LoRA, Hu et al. 2021) as backends take them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from octavo.weights.tensor import Tensor

_PANEL_ROWS = 16


class LowRank(Struct, frozen=True):
    """A product x W^T of the graph becomes gain (x W^T + scale (x down^T) up^T).

    down: [rank, K], up: [N, rank], for W [N, K]; both are floats. Without `down` the product
    becomes x up^T, for up [N, K]. gain: [N], float32; None for 1.
    """

    down: Tensor | None
    up: Tensor
    scale: float
    gain: Tensor | None = None

    @property
    def rank(self) -> int:
        """Columns of `up`."""
        return self.up.shape[1]


class Adapter(Struct, frozen=True):
    """An adapter that fits a graph. changes: by the name of the weight."""

    path: Path
    changes: Mapping[str, LowRank]

    @property
    def max_rank(self) -> int:
        """The largest rank of its changes."""
        return max(change.rank for change in self.changes.values())

    @property
    def num_bytes(self) -> int:
        """What it takes in panels of 16 rows."""
        parts = [part for c in self.changes.values() for part in (c.down, c.up, c.gain)]
        return sum(_padded(part) for part in parts if part is not None)


def _padded(tensor: Tensor) -> int:
    panels = -(-tensor.shape[0] // _PANEL_ROWS)
    return tensor.num_bytes // tensor.shape[0] * panels * _PANEL_ROWS

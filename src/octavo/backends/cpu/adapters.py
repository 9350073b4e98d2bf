"""Where adapters come into a program, and loading them into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo._native import Executor
from octavo.backends.cpu.regions import GatedRegion, LinearRegion, LowRankRegion, Region
from octavo.errors import BackendError
from octavo.weights import dequantize
from octavo.weights.adapter import Adapter, LowRank
from octavo.weights.tensor import Tensor


def with_adapters(regions: Iterable[Region]) -> list[Region]:
    """The regions with a LowRankRegion before every one whose products may be changed. In a step
    without adapters it has nothing to do."""
    found: list[Region] = []
    for region in regions:
        if isinstance(region, LinearRegion):
            weights = [product.weight for product in region.products]
            found.append(LowRankRegion(region.rows, region.source, weights))
        elif isinstance(region, GatedRegion):
            found.append(LowRankRegion(region.rows, region.source, [region.gate, region.up]))
        found.append(region)
    return found


def most_places(regions: Iterable[Region]) -> int:
    """Products of the widest region."""
    return max((len(r.weights) for r in regions if isinstance(r, LowRankRegion)), default=1)


class Target(Struct, frozen=True):
    """A matrix that adapters may change; order: that of its columns, None where it is natural."""

    matrix: int
    order: NDArray[np.int32] | None = None


def load(executor: Executor, number: int, adapter: Adapter, targets: Mapping[str, Target]) -> None:
    """Pack an adapter. targets: by the name of the weight. Raises BackendError."""
    changes = []
    for name, change in adapter.changes.items():
        target = targets.get(name)
        if target is None:
            raise BackendError(f"cpu: {adapter.path}: '{name}' is no matrix of this program")
        changes.append((target.matrix, change.rank, *_parts(change, target.order)))
    try:
        executor.load_adapter(number, changes)
    except ValueError as error:
        raise BackendError(f"cpu: {adapter.path}: {error}") from None


def _parts(change: LowRank, order: NDArray[np.int32] | None) -> _Parts:
    """Types and bytes of A and B, scale, gains. The columns of what reads x are in its order."""
    down, up = change.down, change.up
    gain = np.zeros(0, np.float32) if change.gain is None else dequantize(change.gain)
    if down is None:
        up = _in_order(up, order)
        return (up.scheme.ggml_type, _NOTHING, up.scheme.ggml_type, up.data, change.scale, gain)
    down = _in_order(down, order)
    types = down.scheme.ggml_type, up.scheme.ggml_type
    return (types[0], down.data, types[1], up.data, change.scale, gain)


_NOTHING = np.zeros(0, np.uint8)
_Parts = tuple[int, NDArray[np.uint8], int, NDArray[np.uint8], float, NDArray[np.float32]]


def _in_order(tensor: Tensor, order: NDArray[np.int32] | None) -> Tensor:
    """Floats with their columns in an order."""
    if order is None:
        return tensor
    n, k = tensor.shape
    columns = tensor.data.reshape(n, k, -1)[:, order]
    return Tensor(tensor.name, tensor.shape, tensor.scheme, columns.reshape(-1))

"""Where adapters come into a program, and loading them into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from octavo._native import Executor
from octavo.backends.cpu.regions import GatedRegion, LinearRegion, LowRankRegion, Region
from octavo.errors import BackendError
from octavo.weights.adapter import Adapter


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


def load(executor: Executor, number: int, adapter: Adapter, matrix_of: Mapping[str, int]) -> None:
    """Pack an adapter. matrix_of: the matrix of each weight. Raises BackendError."""
    changes = []
    for name, change in adapter.changes.items():
        if name not in matrix_of:
            raise BackendError(f"cpu: {adapter.path}: '{name}' is no matrix of this program")
        down, up = change.down, change.up
        down_type, up_type = down.scheme.ggml_type, up.scheme.ggml_type
        parts = (change.rank, down_type, down.data, up_type, up.data, change.scale)
        changes.append((matrix_of[name], *parts))
    try:
        executor.load_adapter(number, changes)
    except ValueError as error:
        raise BackendError(f"cpu: {adapter.path}: {error}") from None

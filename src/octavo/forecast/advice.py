"""What to change where a load does not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator

from octavo.engine.loading import Opened
from octavo.forecast.load import Load
from octavo.forecast.memory import MemoryNeed, blocks, memory_need
from octavo.records import replace

SMALL_BITS = 4.5
"""Of a weight in Q4_K and the like."""

_SMALLER_KV = ("int8", "int4")


def sequences(opened: Opened, load: Load, need: MemoryNeed) -> int:
    """How many requests of the load's length the memory holds."""
    block = opened.settings.block_size
    return need.left_for_kv // (blocks(load.context, block) * _block_bytes(opened))


def advice(opened: Opened, load: Load, need: MemoryNeed) -> Iterator[str]:
    """Each line a change that alone makes the load fit; nothing if it fits."""
    if need.fits:
        return
    from octavo.engine.planning import size

    fitting = sequences(opened, load, need)
    if fitting:
        yield f"--concurrency {fitting}: so many requests of {load.context:,} tokens fit at once"
    block = opened.settings.block_size
    length = need.left_for_kv // (load.concurrency * _block_bytes(opened)) * block
    if length > 1:
        yield f"--context {length}: {load.concurrency} requests fit that are no longer than this"
    for dtype in _SMALLER_KV:
        smaller = _with_kv(dtype, opened, load, need)
        if smaller.fits:
            yield f"--kv-dtype {dtype}: {size(need.kv - smaller.kv)} less, then it fits"
            break
    bits = 8 * need.weights / max(1, _elements(opened))
    lighter = int(need.weights * SMALL_BITS / bits)
    if bits > SMALL_BITS + 1 and need.total - need.weights + lighter <= need.available:
        yield (
            f"a file with {SMALL_BITS} bits a weight instead of {bits:.1f}: {size(lighter)} of "
            "weights, then it fits"
        )
    yield f"{size(need.total - need.available)} more memory"


def _with_kv(dtype: str, opened: Opened, load: Load, need: MemoryNeed) -> MemoryNeed:
    changed = replace(opened, settings=replace(opened.settings, kv_dtype=dtype))
    return memory_need(changed, load, need.program, need.available)


def _block_bytes(opened: Opened) -> int:
    return max(1, opened.memory_plan.kv_bytes_per_block)


def _elements(opened: Opened) -> int:
    return sum(math.prod(tensor.shape) for tensor in opened.checkpoint.tensors.values())

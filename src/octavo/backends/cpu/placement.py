"""Gives every slot an offset in the arena: slots whose lifetimes do not meet share memory."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from octavo.backends.cpu.regions import Region, Slot


class _Block(Struct):
    """Memory of one slot, or of several that take it over in place. Lifetime in region numbers,
    both ends included."""

    size: int
    first: int
    last: int
    offset: int = 0


class Placement(Struct, frozen=True):
    """offsets: bytes from the arena's start, by slot."""

    offsets: dict[Slot, int]
    arena_bytes: int


def place(regions: list[Region], size_of: Callable[[Slot], int]) -> Placement:
    """Greedy by size, first fit. size_of gives a slot's bytes, a multiple of 64."""
    last_read = {slot: i for i, region in enumerate(regions) for slot in region.reads()}
    blocks: dict[Slot, _Block] = {}
    for i, region in enumerate(regions):
        shared = dict(region.in_place()[::-1])
        for slot in region.writes():
            end = max(i, last_read.get(slot, i))
            source = shared.get(slot)
            donor = blocks.get(source) if source is not None else None
            fits = donor is not None and donor.last == i and donor.size >= size_of(slot)
            if donor is not None and fits:
                blocks[slot] = donor
                donor.last = end
            else:
                blocks[slot] = _Block(size_of(slot), i, end)
    unique = list({id(b): b for b in blocks.values()}.values())
    total = _assign(unique)
    return Placement({slot: b.offset for slot, b in blocks.items()}, total)


def _assign(blocks: list[_Block]) -> int:
    placed: list[_Block] = []
    for block in sorted(blocks, key=lambda b: -b.size):
        meets = [b for b in placed if b.first <= block.last and block.first <= b.last]
        block.offset = 0
        for other in sorted(meets, key=lambda b: b.offset):
            if block.offset + block.size <= other.offset:
                break
            block.offset = max(block.offset, other.offset + other.size)
        placed.append(block)
    return max((b.offset + b.size for b in blocks), default=0)

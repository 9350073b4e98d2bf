"""Blocks without content, handed out such that a sequence's blocks follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

GROUP_BLOCKS = 16  # blocks that backends may keep together, if their number is a multiple of it


class FreshBlocks:
    """Ids of blocks. A sequence is read faster where its blocks are neighbours, so each one is
    followed by the next id, if that is fresh, and a sequence that takes a whole group's worth at
    once begins in a group of its own while there are any. Shorter ones share groups: the first
    touch of memory costs more than neighbours gain. Memory touched before is taken first."""

    def __init__(self, num_blocks: int) -> None:
        self._group = gcd(num_blocks, GROUP_BLOCKS)
        num_groups = num_blocks // self._group
        # The last key is taken first.
        self._blocks: dict[int, None] = dict.fromkeys(range(num_blocks - 1, -1, -1))
        self._whole: dict[int, None] = dict.fromkeys(range(num_groups - 1, -1, -1))
        self._left = [self._group] * num_groups  # fresh blocks, by group

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)

    def add(self, block: int) -> None:
        """A block that is not among them."""
        group = block // self._group
        self._blocks[block] = None
        self._left[group] += 1
        if self._left[group] == self._group:
            self._whole[group] = None

    def take(self, after: int | None, count: int = 1) -> int:
        """A block for a sequence whose last one is `after` (None: it has none) and that takes
        `count` of them now. Not of nothing."""
        block = self._choose(after, count)
        group = block // self._group
        del self._blocks[block]
        self._left[group] -= 1
        self._whole.pop(group, None)
        return block

    def _choose(self, after: int | None, count: int) -> int:
        if after is not None and after + 1 in self._blocks:
            return after + 1
        if self._whole and count >= self._group:
            return next(reversed(self._whole)) * self._group
        return next(reversed(self._blocks))

"""Block ids with reference counts, and the order in which unused ones are taken again."""

from __future__ import annotations

from collections import OrderedDict

from octavo.cache.fresh_blocks import FreshBlocks
from octavo.cache.prefix_index import PrefixIndex


class BlockPool:
    """Ids 0 .. num_blocks-1. A block is in exactly one of three states:

    in use  references > 0; never handed out, never evicted
    cached  no references, but in the prefix index; kept in least-recently-used order
    fresh   no references and not in the index; taken first, neighbours if there are
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.index = PrefixIndex()
        self._references = [0] * num_blocks
        self._fresh = FreshBlocks(num_blocks)
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks `allocate` can still hand out, cached ones included."""
        return len(self._fresh) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks whose content can still be found by prefix."""
        return len(self._cached)

    def references(self, block: int) -> int:
        """How many tables hold this block."""
        return self._references[block]

    def allocate(self) -> int:
        """A block with one reference and no content; evicts the least recently used if need be.

        The caller asked `num_free` before: an empty pool raises IndexError.
        """
        (block,) = self.extend(1, None)
        return block

    def extend(self, count: int, after: int | None) -> list[int]:
        """So many of them for a sequence whose last block is `after` (None: it has none); those
        evicted together in the order of their ids, since neighbours are read faster."""
        if count > self.num_free:
            raise IndexError("BlockPool.allocate: no free block; ask num_free first")
        blocks: list[int] = []
        while len(blocks) < count and self._fresh:
            after = self._fresh.take(after, count - len(blocks))
            blocks.append(after)
        blocks += sorted(self._evict() for _ in range(count - len(blocks)))
        for block in blocks:
            self._references[block] = 1
        return blocks

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        self.index.remove(block)
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block in use, or take a cached one back into use."""
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference. The last one makes the block cached or fresh."""
        count = self._references[block]
        if count < 1:
            raise ValueError(f"BlockPool.release: block {block} has no reference to drop")
        self._references[block] = count - 1
        if count == 1:
            if block in self.index:
                self._cached[block] = None
            else:
                self._fresh.add(block)

    def clear_index(self) -> None:
        """Forget all cached content; blocks in use stay in use."""
        for block in reversed(self._cached):
            self._fresh.add(block)
        self._cached.clear()
        self.index.clear()

    def check(self) -> None:
        """Raise AssertionError on any broken invariant (for tests)."""
        unused = {b for b, count in enumerate(self._references) if count == 0}
        fresh, cached = set(self._fresh), set(self._cached)
        assert len(fresh) == len(self._fresh), "a block is fresh twice"
        assert fresh | cached == unused, "a block leaked, or is free while in use"
        assert not fresh & cached, "a block is free twice"
        assert all(b in self.index for b in cached), "a cached block is not in the index"
        assert not any(b in self.index for b in fresh), "a fresh block is in the index"
        self.index.check()

"""Block ids with reference counts, and the order in which unused ones are taken again."""

from __future__ import annotations

from collections import OrderedDict

from octavo.cache.prefix_index import PrefixIndex


class BlockPool:
    """Ids 0 .. num_blocks-1. A block is in exactly one of three states:

    in use  references > 0; never handed out, never evicted
    cached  no references, but in the prefix index; kept in least-recently-used order
    fresh   no references and not in the index; taken first, lowest touched memory first
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.index = PrefixIndex()
        self._references = [0] * num_blocks
        self._fresh = list(range(num_blocks - 1, -1, -1))
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
        if self._fresh:
            block = self._fresh.pop()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            self.index.remove(block)
        else:
            raise IndexError("BlockPool.allocate: no free block; ask num_free first")
        self._references[block] = 1
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
                self._fresh.append(block)

    def clear_index(self) -> None:
        """Forget all cached content; blocks in use stay in use."""
        self._fresh.extend(reversed(self._cached))
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

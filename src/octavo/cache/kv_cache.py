"""The blocks of each sequence: growing, sharing, copy-on-write, and finding cached prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.cache.block_pool import BlockPool
from octavo.cache.prefix_index import block_key, root_key


class BlockTable:
    """The blocks one sequence holds, in token order. Only `KvCache` changes it.

    capacity: tokens that may be written without asking `allocate` again. keys: the index keys of
    the sequence's leading full blocks; they depend on its ids alone and survive preemption.
    num_prompt: leading tokens that are of the prompt, where others get other keys and values; None
    where they do not. version: grows with every change of `blocks`, for whoever mirrors them in an
    array.
    """

    __slots__ = (
        "blocks",
        "capacity",
        "indexed",
        "keys",
        "num_prompt",
        "root",
        "use_index",
        "version",
    )

    def __init__(
        self,
        salt: str = "",
        use_index: bool = True,
        adapter: int = -1,
        num_prompt: int | None = None,
    ) -> None:
        self.blocks: list[int] = []
        self.capacity = 0
        self.indexed = 0  # leading blocks already offered to the index
        self.keys: list[bytes] = []
        self.root = root_key(salt, adapter) if use_index else b""
        self.use_index = use_index
        self.num_prompt = num_prompt
        self.version = 0


class KvCache:
    """Block tables over one pool. `copies` collects (source, target) block pairs that the backend
    must copy, in order, before the next step; whoever runs the step empties it."""

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.pool = BlockPool(num_blocks)
        self.copies: list[tuple[int, int]] = []

    def new_table(
        self,
        salt: str = "",
        use_index: bool = True,
        adapter: int = -1,
        num_prompt: int | None = None,
    ) -> BlockTable:
        """An empty table; with use_index False it neither reads nor writes the prefix index.
        adapter: the number of what changes the sequence's keys and values, -1 for nothing.
        num_prompt: see `BlockTable`."""
        return BlockTable(salt, use_index and self.prefix_caching, adapter, num_prompt)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def match(self, table: BlockTable, ids: Sequence[int]) -> list[int]:
        """Cached blocks for the longest known prefix of `ids`, never all of it: the last token
        is always left to compute, because its logits are wanted."""
        found: list[int] = []
        if not table.use_index:
            return found
        for i in range((len(ids) - 1) // self.block_size):
            block = self.pool.index.find(self._key(table, ids, i))
            if block is None:
                break
            found.append(block)
        return found

    def num_idle(self, blocks: list[int]) -> int:
        """How many of these nobody holds: taking them uses up free blocks."""
        return sum(1 for block in blocks if self.pool.references(block) == 0)

    def attach(self, table: BlockTable, blocks: list[int]) -> int:
        """Give an empty table the blocks that `match` found; returns the tokens they hold."""
        if table.blocks:
            raise ValueError("KvCache.attach: the table already holds blocks")
        for block in blocks:
            self.pool.share(block)
        table.blocks = list(blocks)
        table.indexed = len(blocks)
        table.capacity = len(blocks) * self.block_size
        table.version += 1
        return table.capacity

    def num_missing(self, table: BlockTable, start: int, end: int) -> int:
        """Free blocks that writing tokens start .. end-1 would take, a copy included."""
        growth = max(0, self.blocks_for(end) - len(table.blocks))
        return growth + self._must_copy(table, start)

    def can_allocate(self, table: BlockTable, start: int, end: int) -> bool:
        """Whether `allocate` with the same arguments would succeed."""
        return self.num_missing(table, start, end) <= self.pool.num_free

    def allocate(self, table: BlockTable, start: int, end: int) -> None:
        """Make tokens start .. end-1 writable. Ask `can_allocate` first.

        A partial block shared with another table is replaced by a copy of its own; the pair goes
        to `copies`.
        """
        if self._must_copy(table, start):
            i = start // self.block_size
            old, new = table.blocks[i], self.pool.allocate()
            self.copies.append((old, new))
            table.blocks[i] = new
            self.pool.release(old)
        growth = self.blocks_for(end) - len(table.blocks)
        if growth > 0:
            table.blocks += self.pool.extend(growth, table.blocks[-1] if table.blocks else None)
        table.capacity = len(table.blocks) * self.block_size
        table.version += 1

    def commit(self, table: BlockTable, ids: Sequence[int], num_computed: int) -> None:
        """The KV of the first num_computed tokens is now in memory: index the full blocks."""
        full = num_computed // self.block_size
        if table.use_index:
            for i in range(table.indexed, full):
                self.pool.index.add(self._key(table, ids, i), table.blocks[i])
        table.indexed = max(table.indexed, full)

    def fork(self, parent: BlockTable, child: BlockTable, num_computed: int) -> None:
        """Let an empty child share all blocks that hold the parent's first num_computed tokens."""
        if child.blocks:
            raise ValueError("KvCache.fork: the child already holds blocks")
        child.blocks = parent.blocks[: self.blocks_for(num_computed)]
        for block in child.blocks:
            self.pool.share(block)
        child.keys = list(parent.keys)
        child.indexed = parent.indexed
        child.version += 1
        writable = num_computed // self.block_size * self.block_size
        child.capacity = writable
        if num_computed % self.block_size:  # the partial block is shared now: ask before writing
            parent.capacity = writable

    def free(self, table: BlockTable) -> None:
        """Give all blocks back, last first, so that a prefix outlives what hangs on it."""
        if self.copies:
            mine = set(table.blocks)
            self.copies = [pair for pair in self.copies if pair[1] not in mine]
        for block in reversed(table.blocks):
            self.pool.release(block)
        table.blocks = []
        table.indexed = 0
        table.capacity = 0
        table.version += 1

    def clear(self) -> None:
        """Forget all cached prefixes; sequences keep what they hold."""
        self.pool.clear_index()

    def _must_copy(self, table: BlockTable, start: int) -> bool:
        i, offset = divmod(start, self.block_size)
        return offset > 0 and i < len(table.blocks) and self.pool.references(table.blocks[i]) > 1

    def _key(self, table: BlockTable, ids: Sequence[int], i: int) -> bytes:
        """Key of the i-th full block; computes those before it where still missing."""
        keys, size = table.keys, self.block_size
        for j in range(len(keys), i + 1):
            parent = keys[j - 1] if j else table.root
            of_prompt = None if table.num_prompt is None else max(0, table.num_prompt - j * size)
            keys.append(block_key(parent, ids[j * size : (j + 1) * size], of_prompt))
        return keys[i]

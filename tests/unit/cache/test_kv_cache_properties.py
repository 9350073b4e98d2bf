"""The cache against a model of memory: whatever the order of operations, a table reads back the
tokens its sequence wrote, and no block leaks, is freed twice, or is evicted while in use."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from octavo.cache import BlockTable, KvCache

BLOCK = 3
NUM_BLOCKS = 9
token = st.integers(0, 1)  # few, so that prefixes collide often


@dataclass(eq=False)
class Live:
    ids: list[int]
    table: BlockTable
    salt: str
    computed: int = 0


class CacheMachine(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.cache = KvCache(NUM_BLOCKS, BLOCK)
        self.memory: dict[tuple[int, int], tuple[str, tuple[int, ...]]] = {}
        self.live: list[Live] = []

    def compute(self, seq: Live, end: int) -> None:
        """What a backend does: copies first, then the KV of each token, which depends on all
        tokens before it."""
        for source, target in self.cache.copies:
            for i in range(BLOCK):
                self.memory[target, i] = self.memory.get((source, i), ("", ()))
        self.cache.copies.clear()
        for pos in range(seq.computed, end):
            slot = (seq.table.blocks[pos // BLOCK], pos % BLOCK)
            self.memory[slot] = (seq.salt, tuple(seq.ids[: pos + 1]))
        seq.computed = end
        self.cache.commit(seq.table, seq.ids, end)

    @rule(
        target=sequences, ids=st.lists(token, min_size=1, max_size=14), salt=st.sampled_from("ab")
    )
    def start(self, ids: list[int], salt: str):
        table = self.cache.new_table(salt)
        found = self.cache.match(table, ids)
        need = self.cache.blocks_for(len(ids)) - len(found) + self.cache.num_idle(found)
        if need > self.cache.pool.num_free:
            return multiple()
        seq = Live(ids, table, salt)
        seq.computed = self.cache.attach(table, found)
        assert seq.computed < len(ids)
        assert self.cache.can_allocate(table, seq.computed, len(ids))
        self.cache.allocate(table, seq.computed, len(ids))
        self.live.append(seq)
        return seq

    @rule(seq=sequences, data=st.data())
    def prefill(self, seq: Live, data: st.DataObject) -> None:
        self.compute(seq, data.draw(st.integers(seq.computed, len(seq.ids))))

    @rule(seq=sequences, new=token)
    def decode(self, seq: Live, new: int) -> None:
        if seq.computed < len(seq.ids):
            self.compute(seq, len(seq.ids))
        start, end = seq.computed, seq.computed + 1
        if end <= seq.table.capacity or self.cache.can_allocate(seq.table, start, end):
            if end > seq.table.capacity:
                self.cache.allocate(seq.table, start, end)
            seq.ids.append(new)
            self.compute(seq, end)

    @rule(target=sequences, seq=sequences)
    def fork(self, seq: Live):
        child = Live(
            seq.ids[: seq.computed], self.cache.new_table(seq.salt), seq.salt, seq.computed
        )
        if not child.ids or seq.computed < len(seq.ids):
            return multiple()
        self.cache.fork(seq.table, child.table, seq.computed)
        self.live.append(child)
        return child

    @rule(seq=consumes(sequences))
    def free(self, seq: Live) -> None:
        self.cache.free(seq.table)
        self.live.remove(seq)

    @rule()
    def clear(self) -> None:
        self.cache.clear()

    @invariant()
    def pool_is_consistent(self) -> None:
        self.cache.pool.check()
        held = Counter(b for seq in self.live for b in seq.table.blocks)
        for block in range(NUM_BLOCKS):
            assert self.cache.pool.references(block) == held[block]

    @invariant()
    def every_table_reads_back_its_own_tokens(self) -> None:
        for seq in self.live:
            for pos in range(seq.computed):
                slot = (seq.table.blocks[pos // BLOCK], pos % BLOCK)
                assert self.memory[slot] == (seq.salt, tuple(seq.ids[: pos + 1]))


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCacheMachine = CacheMachine.TestCase

"""A scheduler driven over a memory that remembers what was written where."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import pytest

from octavo.cache import KvCache
from octavo.scheduler import Schedule, Scheduler, SchedulerConfig, Sequence

BLOCK = 4


def next_token(ids: tuple[int, ...], sample: int) -> int:
    """A token that depends on everything before it, as a model's does."""
    return blake2b(bytes([*ids, sample]), digest_size=1).digest()[0] % 5


@dataclass
class Driver:
    """Runs schedules over a memory that remembers what was written where."""

    num_blocks: int = 64
    rows: int = 8
    budget: int = 16
    priority: bool = False
    caching: bool = True
    mixed: int = 1000
    weights: dict[str, float] = field(default_factory=dict)
    memory: dict[int, tuple[int, ...]] = field(default_factory=dict)
    limits: dict[Sequence, int] = field(default_factory=dict)
    arrivals: int = 0

    def __post_init__(self) -> None:
        self.cache = KvCache(self.num_blocks, BLOCK, self.caching)
        config = SchedulerConfig(self.rows, self.budget, self.mixed, self.priority, self.weights)
        self.scheduler: Scheduler[Sequence] = Scheduler(config, self.cache)

    def add(
        self, ids: list[int], outputs: int, n: int = 1, priority: int = 0, tenant: str = ""
    ) -> list[Sequence]:
        self.arrivals += 1
        rank = (priority if self.priority else 0, self.arrivals)
        samples = [
            Sequence(list(ids), self.cache.new_table(), (*rank, i), tenant) for i in range(n)
        ]
        samples[0].followers = samples[1:]
        self.limits.update(dict.fromkeys(samples, outputs))
        self.scheduler.add(samples[0])
        return samples

    def write(self, seq: Sequence, start: int, count: int) -> None:
        for pos in range(start, start + count):
            slot = seq.table.blocks[pos // BLOCK] * BLOCK + pos % BLOCK
            self.memory[slot] = tuple(seq.ids[: pos + 1])

    def read(self, seq: Sequence) -> tuple[int, ...]:
        """What attention sees at the last position; every earlier slot must agree."""
        slots = [seq.table.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in range(len(seq.ids))]
        for pos, slot in enumerate(slots):
            assert self.memory[slot] == tuple(seq.ids[: pos + 1])
        return self.memory[slots[-1]]

    def step(self) -> Schedule[Sequence]:
        """Schedule, check what must hold for any schedule, compute, sample, finish."""
        decoding = [s for s in self.scheduler.running if not s.prefilling]
        plan = self.scheduler.schedule()
        assert plan.num_tokens <= self.budget
        assert all(s in plan.decodes or s in plan.preempted for s in decoding)
        assert sum(s.width for s in self.scheduler.running) <= self.rows
        for source, target in self.cache.copies:
            for i in range(BLOCK):
                if (old := self.memory.get(source * BLOCK + i)) is not None:
                    self.memory[target * BLOCK + i] = old
        self.cache.copies.clear()
        drawing = list(plan.decodes)
        for seq in plan.decodes:
            self.write(seq, len(seq.ids) - 1, 1)
        for chunk in plan.chunks:
            assert chunk.count > 0
            assert chunk.start == chunk.sequence.num_computed
            self.write(chunk.sequence, chunk.start, chunk.count)
            if chunk.samples:
                drawing += [chunk.sequence, *chunk.sequence.followers]
        rows = [s.row for s in drawing]
        assert len(set(rows)) == len(rows)
        assert all(0 <= row < self.rows for row in rows)
        self.scheduler.commit(plan)
        for seq in drawing:
            seq.ids.append(next_token(self.read(seq), seq.rank[2]))
            if seq.num_output >= self.limits[seq]:
                self.scheduler.finish(seq)
        self.cache.pool.check()
        return plan

    def run(self, max_steps: int = 2000) -> None:
        for _ in range(max_steps):
            if not self.scheduler.has_work():
                assert self.cache.pool.num_free == self.num_blocks
                return
            plan = self.step()
            assert plan or plan.preempted, "a step without progress"
        pytest.fail("not finished: starvation or livelock")

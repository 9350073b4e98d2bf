"""Continuous batching: decodes first, then prefill chunks, then admissions, under one budget.

The rules, in the order they are applied:
1. Every running decode gets its token. If one needs a block and none is free, a running sequence
   is preempted (victims.py): its blocks are freed, its ids kept, it waits for recomputation.
2. Running prefills continue in rank order with what is left of the budget. Beside decodes it is a
   smaller one, so a prompt costs running streams little at a time; and streams that began together
   drift apart, so that they do not all end, and send their next prompts, in the same moment.
3. Waiting sequences are admitted in the order of queue.py (priority, then the tenant that is owed
   most, then rank), nobody overtaking, if a row is free and the blocks for all their ids are, with
   one block to spare for each running sequence: no one is admitted only to be preempted at once.
   Under the priority policy a waiting sequence may take the place of running ones with a strictly
   larger priority number, and always that of tenants which hold more than their share, if its own
   holds less. It goes before running prefills of tenants that are owed less.
The best-ranked running sequence is never preempted for want of blocks, nor a tenant's share for
another tenant, so every request finishes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from operator import attrgetter
from typing import Generic

from msgspec import Struct, field

from octavo.cache import KvCache
from octavo.scheduler.queue import WaitingQueue
from octavo.scheduler.schedule import Chunk, S, Schedule
from octavo.scheduler.sequence import Rank, Sequence, Status
from octavo.scheduler.shares import Ledger
from octavo.scheduler.victims import over_share, worst

_by_rank = attrgetter("rank")


def _urgency(sequence: Sequence) -> tuple[int, float, Rank]:
    """Sorts by priority, then by what the tenant was given, then by rank."""
    return sequence.rank[0], sequence.account.counter, sequence.rank


class SchedulerConfig(Struct, frozen=True):
    """max_num_seqs: rows of a step. max_num_batched_tokens: tokens of a step, of which
    max_num_mixed_tokens may be of prompts if the step has decodes.
    preempt_for_priority: let a waiting sequence displace running ones of a larger priority.
    tenant_weights: shares of tenants; 1 for those not named.
    whole_prompts: a prompt is never cut; one longer than a step's tokens has a step for itself."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_num_mixed_tokens: int = 192
    preempt_for_priority: bool = False
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    whole_prompts: bool = False


class Scheduler(Generic[S]):
    """Owns the queues and moves sequences between them. `schedule` decides and allocates blocks;
    `commit` follows once the step has really run; if it failed, its sequences are finished instead.
    `add` and `finish` are for the time between steps."""

    def __init__(self, config: SchedulerConfig, cache: KvCache) -> None:
        self.config = config
        self.cache = cache
        self.ledger = Ledger(config.tenant_weights)
        self.waiting: WaitingQueue[S] = WaitingQueue(self.ledger)
        self.running: list[S] = []  # sorted by rank
        self.max_rows = min(config.max_num_seqs, config.max_num_batched_tokens)
        self.num_preemptions = 0
        self.num_prompt_queries = 0  # prompt tokens looked up in the prefix index
        self.num_prompt_hits = 0  # and found there
        self._free_rows = list(range(self.max_rows - 1, -1, -1))

    def has_work(self) -> bool:
        """Whether `schedule` would have anything to do."""
        return bool(self.running or self.waiting)

    @property
    def num_rows_taken(self) -> int:
        """Rows of running sequences and of followers that will join them."""
        return self.max_rows - len(self._free_rows)

    def add(self, sequence: S) -> None:
        """Queue a sequence (with its followers). The caller has checked that it can ever fit."""
        self.waiting.push(sequence)
        for follower in sequence.followers:
            follower.status = Status.FORKING
            follower.account = sequence.account

    def finish(self, sequence: S) -> None:
        """Take a sequence out, whatever its state; its blocks and row are free at once."""
        if sequence.status is Status.WAITING:
            self.waiting.discard(sequence)
        elif sequence.status is Status.RUNNING:
            self.running.remove(sequence)
            self.cache.free(sequence.table)
        sequence.status = Status.FINISHED
        self._release_row(sequence)

    def schedule(self) -> Schedule[S]:
        """Decide the next step. Blocks are allocated; nothing counts as computed yet."""
        plan: Schedule[S] = Schedule()
        self._decode(plan)
        budget = self.config.max_num_batched_tokens - len(plan.decodes)
        if plan.decodes:
            budget = min(budget, self.config.max_num_mixed_tokens)
        admits = bool(self.waiting) and not plan.preempted
        for sequence in self._prefills():
            if admits:
                budget = self._admit(plan, budget, before=sequence)
            if budget > 0 and sequence.status is Status.RUNNING:
                budget -= self._add_chunk(plan, sequence, budget)
        if admits:
            self._admit(plan, budget)
        return plan

    def commit(self, plan: Schedule[S]) -> None:
        """The step has run: advance, index full blocks, and let followers join their leaders."""
        commit = self.cache.commit
        block_size = self.cache.block_size
        for sequence in plan.decodes:
            sequence.num_computed = done = sequence.num_computed + 1
            sequence.account.counter += sequence.account.output_cost
            if done % block_size == 0:
                commit(sequence.table, sequence.ids, done)
        for chunk in plan.chunks:
            self._commit_chunk(chunk)

    def _decode(self, plan: Schedule[S]) -> None:
        for sequence in list(self.running):
            if sequence.prefilling or sequence.status is not Status.RUNNING:
                continue  # or it was preempted for one before it
            if len(sequence.ids) <= sequence.table.capacity or self._grow(plan, sequence):
                plan.decodes.append(sequence)

    def _grow(self, plan: Schedule[S], sequence: S) -> bool:
        """Make the next token writable; False if that took preempting the sequence itself."""
        start, end = sequence.num_computed, len(sequence.ids)
        while not self.cache.can_allocate(sequence.table, start, end):
            victim = worst(self.running)
            self._preempt(plan, victim)
            if victim is sequence:
                return False
        self.cache.allocate(sequence.table, start, end)
        return True

    def _add_chunk(self, plan: Schedule[S], sequence: S, budget: int) -> int:
        """Schedule the sequence's next ids; returns how many."""
        start, end = sequence.num_computed, len(sequence.ids)
        score = sequence.num_scored < sequence.num_to_score
        if score:
            end = sequence.num_to_score
            budget = min(budget, self.max_rows)
        count = end - start if self.config.whole_prompts else min(end - start, budget)
        plan.chunks.append(Chunk(sequence, start, count, score))
        return count

    def _prefills(self) -> list[S]:
        """Running sequences with prompt left to compute, best first."""
        found = [sequence for sequence in self.running if sequence.prefilling]
        if len(found) > 1:
            found.sort(key=_urgency)
        return found

    def _admit(self, plan: Schedule[S], budget: int, before: S | None = None) -> int:
        """Admit what fits; with `before`, only what is more urgent. Returns the budget left."""
        while budget > 0:
            sequence = self.waiting.peek()
            if sequence is None or sequence in plan.preempted:
                break
            if before is not None and not _urgency(sequence)[:2] < _urgency(before)[:2]:
                break
            if self.config.whole_prompts and plan.chunks and len(sequence.ids) > budget:
                break
            found = self._cached_prefix(sequence)
            if not self._fits(sequence, found):
                taken = self._displace(plan, sequence, found)
                if taken is None:
                    break
                budget += taken
            self._start(plan, sequence, found)
            budget -= self._add_chunk(plan, sequence, budget)
        return budget

    def _cached_prefix(self, sequence: S) -> list[int]:
        if sequence.num_scored < sequence.num_to_score:  # every position's logits are wanted
            return []
        return self.cache.match(sequence.table, sequence.ids)

    def _fits(self, sequence: S, found: list[int]) -> bool:
        if sequence.width > len(self._free_rows):
            return False
        spare = len(self.running) + sequence.width - 1 if self.running else 0
        return self._need(sequence, found) + spare <= self.cache.pool.num_free

    def _need(self, sequence: S, found: list[int]) -> int:
        """Free blocks that admitting takes: new ones, and cached ones nobody holds."""
        new = self.cache.blocks_for(len(sequence.ids)) - len(found)
        return new + self.cache.num_idle(found)

    def _start(self, plan: Schedule[S], sequence: S, found: list[int]) -> None:
        """Move the waiting queue's head to running, with rows and blocks for all its ids."""
        self.waiting.take(sequence)  # which may not be the head any more: victims wait too
        sequence.num_computed = self.cache.attach(sequence.table, found)
        self.cache.allocate(sequence.table, sequence.num_computed, len(sequence.ids))
        sequence.status = Status.RUNNING
        sequence.prefilling = True
        insort(self.running, sequence, key=_by_rank)
        self.ledger.count(sequence.account, rows=sequence.width)
        for member in (sequence, *sequence.followers):
            member.row = self._free_rows.pop()
            plan.admitted.append(member)
        sequence.num_charged = max(sequence.num_charged, sequence.num_computed)
        if sequence.table.use_index:
            self.num_prompt_queries += len(sequence.ids)
            self.num_prompt_hits += sequence.num_computed

    def _displace(self, plan: Schedule[S], sequence: S, found: list[int]) -> int | None:
        """Preempt running sequences of strictly larger priority, or of tenants that hold more than
        their share, until `sequence` fits; returns the tokens that frees in this step's budget, or
        None (and does nothing) if that cannot help."""
        freed = self._displace_unfair(plan, sequence, found)
        if freed is not None or not self.config.preempt_for_priority:
            return freed
        victims = [s for s in self.running if s.rank[0] > sequence.rank[0]]
        rows = sum(v.width for v in victims) + len(self._free_rows)
        blocks = sum(self._owned(v) for v in victims) + self.cache.pool.num_free
        spare = len(self.running) - len(victims) + sequence.width - 1
        if sequence.width > rows or self._need(sequence, found) + spare > blocks:
            return None
        freed = 0
        while victims and not self._fits(sequence, found):
            freed += self._preempt(plan, victims.pop())
        return freed if self._fits(sequence, found) else None

    def _displace_unfair(self, plan: Schedule[S], sequence: S, found: list[int]) -> int | None:
        victims = over_share(
            sequence,
            self._need(sequence, found),
            self.running,
            self.ledger,
            self.max_rows,
            len(self._free_rows),
            self.cache,
        )
        freed = sum(self._preempt(plan, victim) for victim in victims)
        return freed if victims and self._fits(sequence, found) else None

    def _owned(self, sequence: S) -> int:
        """Blocks that only this sequence holds."""
        pool = self.cache.pool
        return sum(1 for block in sequence.table.blocks if pool.references(block) == 1)

    def _preempt(self, plan: Schedule[S], victim: S) -> int:
        """Back to waiting, without blocks or row; returns its tokens in this step's plan."""
        planned = plan.num_tokens
        if victim in plan.decodes:
            plan.decodes.remove(victim)
        plan.chunks = [c for c in plan.chunks if c.sequence is not victim]
        self.running.remove(victim)
        self.cache.free(victim.table)
        victim.num_charged = max(victim.num_charged, victim.num_computed)
        victim.num_computed = 0
        if victim.num_scored < victim.num_to_score:
            victim.num_scored = 0
        for member in (victim, *victim.followers):
            self._release_row(member)
        self.waiting.push(victim)
        plan.preempted.append(victim)
        self.num_preemptions += 1
        return planned - plan.num_tokens

    def _release_row(self, sequence: S) -> None:
        if sequence.row >= 0:
            self._free_rows.append(sequence.row)
            self.ledger.count(sequence.account, rows=-1)
            sequence.row = -1

    def _commit_chunk(self, chunk: Chunk[S]) -> None:
        sequence = chunk.sequence
        sequence.num_computed = done = chunk.start + chunk.count
        if chunk.score:
            sequence.num_scored = done
        self.cache.commit(sequence.table, sequence.ids, done)
        self._charge(sequence, done)
        if done == len(sequence.ids):
            sequence.prefilling = False
            for follower in sequence.followers:
                self._join(sequence, follower)
            sequence.followers = []

    def _charge(self, sequence: S, done: int) -> None:
        """A prompt is charged in portions: until one is computed, nobody goes before it who was not
        owed more when it began. What is computed again after a preemption is free."""
        portion = done - sequence.num_charged
        if portion >= self.config.max_num_batched_tokens or done == len(sequence.ids):
            sequence.account.charge_prompt(max(0, portion))
            sequence.num_charged = max(sequence.num_charged, done)

    def _join(self, leader: S, follower: S) -> None:
        follower.ids = list(leader.ids)
        self.cache.fork(leader.table, follower.table, leader.num_computed)
        follower.num_computed = leader.num_computed
        follower.status = Status.RUNNING
        follower.prefilling = False
        insort(self.running, follower, key=_by_rank)

"""Sequences that wait for rows and blocks: priorities first, then tenants in turn, then rank."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic

from octavo.scheduler.schedule import S
from octavo.scheduler.sequence import NOBODY, Rank, Status
from octavo.scheduler.shares import Account, Ledger


class _Line(Generic[S]):
    """One tenant's sequences of one priority: a heap by rank, some of whose members have left."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.heap: list[tuple[Rank, S]] = []
        self.count = 0

    def first(self) -> S:
        """The best one; there is one."""
        while self.heap[0][1].status is not Status.WAITING:
            heappop(self.heap)
        return self.heap[0][1]

    def compact(self) -> None:
        """Drop those that have left, if they are many."""
        if len(self.heap) > 64 and len(self.heap) > 2 * self.count:
            self.heap = [entry for entry in self.heap if entry[1].status is Status.WAITING]
            heapify(self.heap)


class _Class(Generic[S]):
    """The lines of one priority, in a heap by an order that may have grown since: an entry is put
    right when it surfaces."""

    def __init__(self) -> None:
        self.lines: dict[str, _Line[S]] = {}
        self._heap: list[tuple[tuple[float, int], str]] = []

    def line(self, account: Account) -> _Line[S]:
        """A tenant's line, made if need be."""
        found = self.lines.get(account.name)
        if found is None:
            found = self.lines[account.name] = _Line(account)
            heappush(self._heap, (account.order, account.name))
        return found

    def best(self) -> _Line[S] | None:
        """The line of the tenant that is owed most; None if nobody waits."""
        while self._heap:
            order, name = self._heap[0]
            line = self.lines[name]
            if line.count == 0:
                heappop(self._heap)
                del self.lines[name]
            elif line.account.order != order:
                heapreplace(self._heap, (line.account.order, name))
            else:
                return line
        return None


class WaitingQueue(Generic[S]):
    """`peek` and `pop` give the sequence that is next: of the smallest priority number, of the
    tenant that is owed most, of the best rank."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger()
        self._classes: dict[int, _Class[S]] = {}
        self._count = 0
        self.num_tokens = 0  # ids of all that wait

    def __len__(self) -> int:
        return self._count

    def push(self, sequence: S) -> None:
        """Add a sequence and mark it WAITING. Ranks are unique."""
        account = sequence.account
        if account is NOBODY:
            account = sequence.account = self._ledger.account(sequence.tenant)
        if account.num_waiting == 0:
            self._ledger.lift(account, self._least())
        self._ledger.count(account, waiting=1)
        sequence.status = Status.WAITING
        line = self._classes.setdefault(sequence.rank[0], _Class()).line(account)
        heappush(line.heap, (sequence.rank, sequence))
        line.count += 1
        self._count += 1
        self.num_tokens += len(sequence.ids)

    def peek(self) -> S | None:
        """The next sequence, or None."""
        line = self._best()
        return None if line is None else line.first()

    def pop(self) -> S:
        """Take the next one out; the caller sets its new status. Raises IndexError if empty."""
        sequence = self.peek()
        if sequence is None:
            raise IndexError("WaitingQueue.pop: nobody waits")
        self.take(sequence)
        return sequence

    def take(self, sequence: S) -> None:
        """Take out the first of a tenant's sequences of its priority, as `peek` has shown it; the
        caller sets its new status."""
        line = self._classes[sequence.rank[0]].lines[sequence.account.name]
        if line.first() is not sequence:
            raise ValueError("WaitingQueue.take: others of its tenant wait before it")
        heappop(line.heap)
        self._ledger.serve(line.account)
        self._leave(line, sequence)

    def discard(self, sequence: S) -> None:
        """A waiting sequence leaves: it becomes FINISHED."""
        account = sequence.account
        sequence.status = Status.FINISHED
        line = self._classes[sequence.rank[0]].lines[account.name]
        self._leave(line, sequence)
        line.compact()

    def _leave(self, line: _Line[S], sequence: S) -> None:
        line.count -= 1
        self._ledger.count(line.account, waiting=-1)
        self._count -= 1
        self.num_tokens -= len(sequence.ids)

    def _best(self) -> _Line[S] | None:
        for priority in sorted(self._classes):
            line = self._classes[priority].best()
            if line is not None:
                return line
            del self._classes[priority]
        return None

    def _least(self) -> float | None:
        """The smallest counter of those that wait."""
        lines = (found.best() for found in self._classes.values())
        return min((line.account.counter for line in lines if line is not None), default=None)

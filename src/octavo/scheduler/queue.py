"""Sequences that wait for rows and blocks, best rank first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic

from octavo.scheduler.schedule import S
from octavo.scheduler.sequence import Rank, Status


class WaitingQueue(Generic[S]):
    """A heap by rank. A sequence that stops waiting is marked, and dropped when it surfaces."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, S]] = []
        self._count = 0
        self.num_tokens = 0  # ids of all that wait

    def __len__(self) -> int:
        return self._count

    def push(self, sequence: S) -> None:
        """Add a sequence and mark it WAITING. Ranks are unique."""
        sequence.status = Status.WAITING
        heappush(self._heap, (sequence.rank, sequence))
        self._count += 1
        self.num_tokens += len(sequence.ids)

    def peek(self) -> S | None:
        """The best waiting sequence, or None."""
        while self._heap and self._heap[0][1].status is not Status.WAITING:
            heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def pop(self) -> S:
        """Take the best one out; the caller sets its new status. Raises IndexError if empty."""
        sequence = self.peek()
        if sequence is None:
            raise IndexError("WaitingQueue.pop: nobody waits")
        heappop(self._heap)
        self._count -= 1
        self.num_tokens -= len(sequence.ids)
        return sequence

    def discard(self, sequence: S) -> None:
        """A waiting sequence leaves: it becomes FINISHED."""
        sequence.status = Status.FINISHED
        self._count -= 1
        self.num_tokens -= len(sequence.ids)
        if len(self._heap) > 64 and len(self._heap) > 2 * self._count:
            self._heap = [e for e in self._heap if e[1].status is Status.WAITING]
            heapify(self._heap)

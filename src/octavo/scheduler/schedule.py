"""One step's decisions."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct, field

from octavo.scheduler.sequence import Sequence

S = TypeVar("S", bound=Sequence)


class Chunk(Struct, Generic[S]):
    """Compute ids[start : start + count] of a sequence. If `score`, the logits of every position
    are wanted and nothing is sampled; else the last position is sampled once it is the last id."""

    sequence: S
    start: int
    count: int
    score: bool = False

    @property
    def samples(self) -> bool:
        """Whether this chunk ends at the sequence's last id, so that a next token is drawn."""
        return not self.score and self.start + self.count == len(self.sequence.ids)


class Schedule(Struct, Generic[S]):
    """decodes: one token each. chunks: prefill, some of which end in a first token. admitted:
    sequences that got a row in this step, followers included. preempted: those that lost theirs.
    """

    decodes: list[S] = field(default_factory=list)
    chunks: list[Chunk[S]] = field(default_factory=list)
    admitted: list[S] = field(default_factory=list)
    preempted: list[S] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens the step computes."""
        return len(self.decodes) + sum(chunk.count for chunk in self.chunks)

    def __bool__(self) -> bool:
        return bool(self.decodes or self.chunks)

"""What the scheduler knows of one sample: its tokens, how far they are computed, its blocks."""

from __future__ import annotations

from enum import Enum
from typing import Self, TypeAlias

from octavo.cache import BlockTable
from octavo.scheduler.shares import Account

Rank: TypeAlias = tuple[int, int, int]
NOBODY = Account("", 1.0)
"""The account of sequences that were never queued."""


class Status(Enum):
    """NEW is not queued yet; WAITING holds nothing; RUNNING holds blocks and a row; FORKING holds a
    row and waits for the prompt its first sample computes; FINISHED is out."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    FORKING = "forking"
    FINISHED = "finished"


class Sequence:
    """One sample of one request. The scheduler changes status, row, num_computed and table; the
    engine appends to `ids` and reads the rest.

    ids: prompt and output so far. num_computed: leading ids whose KV is in memory. rank: sorts
    sequences, the smallest first in line and last to be preempted. row: index in the batch's
    arrays while RUNNING or FORKING, else -1. followers: further samples of the same prompt; they
    share this one's blocks as soon as the prompt is computed. num_to_score: leading prompt
    positions whose logits are wanted; num_scored: how many of those are done. tenant: who it
    belongs to; account: that tenant's, once queued; num_charged: leading ids that are
    on its bill.
    """

    __slots__ = (
        "account",
        "followers",
        "ids",
        "num_charged",
        "num_computed",
        "num_prompt",
        "num_scored",
        "num_to_score",
        "prefilling",
        "rank",
        "row",
        "status",
        "table",
        "tenant",
    )

    def __init__(self, ids: list[int], table: BlockTable, rank: Rank, tenant: str = "") -> None:
        self.ids = ids
        self.num_prompt = len(ids)
        self.num_computed = 0
        self.table = table
        self.rank = rank
        self.row = -1
        self.status = Status.NEW
        self.prefilling = True
        self.followers: list[Self] = []
        self.num_to_score = 0
        self.num_scored = 0
        self.tenant = tenant
        self.account: Account = NOBODY
        self.num_charged = 0

    @property
    def width(self) -> int:
        """Rows it needs: itself and the followers that will join it."""
        return 1 + len(self.followers)

    @property
    def num_output(self) -> int:
        """Tokens generated so far."""
        return len(self.ids) - self.num_prompt

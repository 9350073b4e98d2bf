"""Whom to preempt when blocks or rows run out. Pure choices; the scheduler acts on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as List

from octavo.cache import KvCache
from octavo.scheduler.schedule import S
from octavo.scheduler.shares import Account, Ledger


def worst(running: List[S]) -> S:
    """Whose blocks go when a running sequence needs one: of the largest priority number, of the
    tenant that holds most for its weight, the latest. Never the best-ranked of several.

    running: sorted by rank, not empty.
    """
    if len(running) == 1:
        return running[0]
    priority = running[-1].rank[0]
    candidates = [s for s in running[1:] if s.rank[0] == priority]
    accounts = {s.account for s in candidates}
    if len(accounts) > 1:
        held = _blocks_held(running)
        greediest = max(accounts, key=lambda account: _per_weight(held, account))
        candidates = [s for s in candidates if s.account is greediest]
    return candidates[-1]


def over_share(
    sequence: S,
    need: int,
    running: List[S],
    ledger: Ledger,
    num_rows: int,
    num_free_rows: int,
    cache: KvCache,
) -> list[S]:
    """Running sequences to preempt so that a waiting one fits; empty if that is not fair.

    Only a tenant that stays within its share of rows and blocks may ask, and only from tenants that
    keep theirs: so no two tenants can take from each other in turn. need: free blocks that the
    waiting sequence takes.
    """
    own, pool, total = sequence.account, cache.pool, ledger.active_weight
    if ledger.num_active < 2:
        return []
    row_share, block_share = num_rows / total, pool.num_blocks / total
    rows = Counter({s.account: s.account.num_rows for s in running})
    blocks = _blocks_held(running)
    if rows[own] + sequence.width > max(1.0, row_share * own.weight):
        return []
    if blocks[own] + need > block_share * own.weight:
        return []
    chosen: list[S] = []
    free_rows, free_blocks, spare = num_free_rows, pool.num_free, len(running) + sequence.width - 1
    for victim in reversed(running):
        short_of_rows, short_of_blocks = sequence.width > free_rows, need + spare > free_blocks
        if not (short_of_rows or short_of_blocks):
            break
        account = victim.account
        if account is own or victim.rank[0] < sequence.rank[0]:
            continue
        owned = sum(1 for block in victim.table.blocks if pool.references(block) == 1)
        spares_row = rows[account] - victim.width >= row_share * account.weight
        spares_blocks = blocks[account] - owned >= block_share * account.weight
        if (spares_row and short_of_rows) or (spares_blocks and short_of_blocks):
            chosen.append(victim)
            rows[account] -= victim.width
            blocks[account] -= owned
            free_rows, free_blocks, spare = free_rows + victim.width, free_blocks + owned, spare - 1
    fits = sequence.width <= free_rows and need + spare <= free_blocks
    return chosen if fits else []


def _blocks_held(running: List[S]) -> Counter[Account]:
    held: Counter[Account] = Counter()
    for sequence in running:
        held[sequence.account] += len(sequence.table.blocks)
    return held


def _per_weight(held: Counter[Account], account: Account) -> float:
    return held[account] / account.weight

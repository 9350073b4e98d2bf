"""A step that breaks the contract is refused, naming the array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from octavo.backends import Step
from octavo.backends.check import StepLimits, check_pairs, check_step
from octavo.backends.testing import PagedSequences
from octavo.errors import BackendError

LIMITS = StepLimits(max_tokens=8, max_seqs=4, block_size=4, num_blocks=6, vocab_size=100)


def sound_step() -> Step:
    """Three tokens of one sequence behind five cached ones, and one of another."""
    paged = PagedSequences(4, 6)
    first, second = paged.open(), paged.open()
    paged.step({first: [1, 2, 3, 4, 5]})
    return paged.step({first: [6, 7, 8], second: [9]}, rows=[2, 3, 3])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def put(name: str, value: np.ndarray) -> Callable[[Step], None]:
    return lambda step: setattr(step, name, value)


def poke(name: str, index: int | tuple[int, int], value: int) -> Callable[[Step], None]:
    return lambda step: getattr(step, name).__setitem__(index, value)


BROKEN: dict[str, tuple[Callable[[Step], None], str]] = {
    "type": (put("tokens", np.array([6, 7, 8, 9])), "tokens: got int64"),
    "rank": (put("block_table", ints(0, 1)), "block_table: got int32 of rank 1"),
    "strided": (put("positions", np.zeros(8, np.int32)[::2]), "positions: .*contiguous"),
    "length": (put("positions", ints(5, 6, 7)), "positions: got 3 entries, expected 4"),
    "starts": (put("query_start", ints(0, 3)), "query_start: got 2 entries, expected 3"),
    "too-many-tokens": (
        lambda step: (
            [put(n, np.zeros(9, np.int32))(step) for n in ("tokens", "positions", "slots")] and None
        ),
        "tokens: got 9 entries, expected 1 to 8",
    ),
    "too-many-rows": (put("logit_rows", ints(0, 0, 0, 0, 0)), "logit_rows: got 5 rows"),
    "starts-not-at-0": (put("query_start", ints(1, 3, 4)), "query_start: .* rising from 0 to T"),
    "starts-not-rising": (put("query_start", ints(0, 4, 4)), "rising from 0 to T"),
    "too-short": (put("seq_len", ints(2, 1)), "seq_len: got .*, expected at least"),
    "position": (poke("positions", 1, 7), r"positions: got \[5, 7, 7, 0\]"),
    "slot": (poke("slots", 0, 0), "slots: .* by the block table"),
    "narrow-table": (put("block_table", ints(0, 1).reshape(2, 1)), "block_table: got 1 columns"),
    "block-id": (poke("block_table", (0, 0), 6), "block_table: got .* expected 0 to 5"),
    "token-id": (poke("tokens", 0, 100), "tokens: got .* expected 0 to 99"),
    "token-negative": (poke("tokens", 0, -1), "tokens: got -1"),
    "logit-row": (poke("logit_rows", 0, 4), "logit_rows: .* expected 0 to 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_step(name: str) -> None:
    breaks, message = BROKEN[name]
    step = sound_step()
    breaks(step)
    with pytest.raises(BackendError, match=message):
        check_step(step, LIMITS)


def test_two_sequences_may_not_write_one_slot() -> None:
    step = sound_step()
    step.block_table[1, 0] = step.block_table[0, 1]
    step.slots[3] = step.block_table[0, 1] * 4
    step.positions[:3] = [4, 5, 6]
    step.seq_len[0] = 7
    step.slots[:3] = step.block_table[0, 1] * 4 + np.arange(3)
    with pytest.raises(BackendError, match="one slot written twice"):
        check_step(step, LIMITS)


def test_sound_steps_pass() -> None:
    step = sound_step()
    check_step(step, LIMITS)
    step.logit_rows = ints()
    check_step(step, LIMITS)


def test_pairs() -> None:
    check_pairs(ints(0, 1, 0, 2).reshape(2, 2), 3)
    check_pairs(np.empty((0, 2), np.int32), 3)
    for pairs, message in (
        (ints(0, 1), r"shape \[2\]"),
        (ints(0, 3).reshape(1, 2), "0 to 2"),
        (ints(0, 1, 2, 1).reshape(2, 2), "a target block twice"),
    ):
        with pytest.raises(BackendError, match=message):
            check_pairs(pairs, 3)

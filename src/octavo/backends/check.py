"""Checks one step's inputs in full. For backends whose point is to be right, not fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.backends.base import Ints, Step
from octavo.errors import BackendError


@dataclass(frozen=True)
class StepLimits:
    """What a step may hold: sizes as compiled, block ids below num_blocks, tokens below vocab,
    types below num_types. whole_sequences: every sequence from its first token to its last."""

    max_tokens: int
    max_seqs: int
    block_size: int
    num_blocks: int
    vocab_size: int
    num_types: int = 1
    whole_sequences: bool = False


def check_step(step: Step, limits: StepLimits) -> None:
    """Raise BackendError naming the array, got and expected, unless the step keeps the contract:
    sizes within limits, positions that follow seq_len, slots that follow the block table."""
    _check_shapes(step)
    _check_limits(step, limits)
    _check_sequences(step, limits)
    _within("tokens", step.tokens, limits.vocab_size)
    _within("logit_rows", step.logit_rows, len(step.tokens))
    if step.types is not None:
        _within("types", step.types, limits.num_types)


def check_pairs(pairs: Ints, num_blocks: int) -> None:
    """Raise BackendError unless pairs is [n, 2] of block ids and no target is given twice."""
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        _fail("pairs", f"shape {list(pairs.shape)}", "[n, 2]")
    _within("pairs", pairs, num_blocks)
    if len(np.unique(pairs[:, 1])) != len(pairs):
        _fail("pairs", "a target block twice", "each once")


def _fail(name: str, got: str, expected: str) -> None:
    raise BackendError(f"step: {name}: got {got}, expected {expected}")


def _check_shapes(step: Step) -> None:
    for name, rank in _RANKS.items():
        array = getattr(step, name)
        if array.dtype != np.int32 or array.ndim != rank or not array.flags.c_contiguous:
            got = f"{array.dtype} of rank {array.ndim}"
            _fail(name, got, f"contiguous int32 of rank {rank}")
    tokens, seqs = len(step.tokens), len(step.seq_len)
    types = step.types
    if types is not None and (types.dtype != np.int32 or types.shape != step.tokens.shape):
        _fail("types", f"{types.dtype} {list(types.shape)}", f"int32 [{tokens}]")
    adapters = step.adapters
    if adapters is not None and (adapters.dtype != np.int32 or adapters.shape != (seqs,)):
        _fail("adapters", f"{adapters.dtype} {list(adapters.shape)}", f"int32 [{seqs}]")
    sizes = {"positions": tokens, "slots": tokens, "block_table": seqs, "query_start": seqs + 1}
    for name, size in sizes.items():
        if len(getattr(step, name)) != size:
            _fail(name, f"{len(getattr(step, name))} entries", f"{size}")


_RANKS = {
    "tokens": 1,
    "positions": 1,
    "slots": 1,
    "query_start": 1,
    "seq_len": 1,
    "block_table": 2,
    "logit_rows": 1,
}


def _check_limits(step: Step, limits: StepLimits) -> None:
    sizes = (
        ("tokens", len(step.tokens), limits.max_tokens),
        ("seq_len", len(step.seq_len), limits.max_seqs),
    )
    for name, size, most in sizes:
        if not 1 <= size <= most:
            _fail(name, f"{size} entries", f"1 to {most}, as compiled")
    if len(step.logit_rows) > limits.max_seqs:
        _fail("logit_rows", f"{len(step.logit_rows)} rows", f"at most {limits.max_seqs}")


def _check_sequences(step: Step, limits: StepLimits) -> None:
    lengths = np.diff(step.query_start)
    if step.query_start[0] != 0 or step.query_start[-1] != len(step.tokens) or lengths.min() < 1:
        _fail("query_start", str(step.query_start.tolist()), "rising from 0 to T")
    if (step.seq_len < lengths).any():
        _fail("seq_len", str(step.seq_len.tolist()), f"at least {lengths.tolist()}")
    if limits.whole_sequences and (step.seq_len != lengths).any():
        _fail("seq_len", str(step.seq_len.tolist()), f"whole sequences, {lengths.tolist()}")
    first = step.seq_len - lengths - step.query_start[:-1]
    expected = np.arange(len(step.tokens)) + np.repeat(first, lengths)
    if not np.array_equal(step.positions, expected):
        _fail("positions", str(step.positions.tolist()), str(expected.tolist()))
    _check_blocks(step, limits)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    block = step.block_table[rows, step.positions // limits.block_size]
    slots = block * limits.block_size + step.positions % limits.block_size
    if not np.array_equal(step.slots, slots):
        _fail("slots", str(step.slots.tolist()), f"{slots.tolist()}, by the block table")
    if len(np.unique(slots)) != len(slots):
        _fail("slots", "one slot written twice", "a slot for each token")


def _check_blocks(step: Step, limits: StepLimits) -> None:
    needed = -(-step.seq_len // limits.block_size)
    if needed.max() > step.block_table.shape[1]:
        _fail("block_table", f"{step.block_table.shape[1]} columns", f"{needed.max()}")
    for row, count in zip(step.block_table, needed, strict=True):
        _within("block_table", row[:count], limits.num_blocks)


def _within(name: str, values: Ints, size: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= size):
        _fail(name, f"{values.min()} to {values.max()}", f"0 to {size - 1}")

"""The null backend: the whole pipeline without computing, for tests of what stands above it.

A token's successor is scripted, by default the next id, so that tests can predict every output.
The cache is real in one respect: each slot remembers the token and position written to it, a step
that reads a slot which does not hold its position is refused, and the logits depend on the whole
context as read through the block table. A bookkeeping error above shows at once. With mixed
products a slot remembers too whether its token was of a prompt.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import (
    Backend,
    BackendOptions,
    Executable,
    Floats,
    Ints,
    MemoryPlan,
    Step,
)
from octavo.backends.check import StepLimits, check_pairs, check_step
from octavo.decoding.batch import SampleResult, SamplingBatch
from octavo.errors import BackendError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.weights.adapter import Adapter
from octavo.weights.tensor import Checkpoint

NextToken = Callable[[int, int], int]
"""(token, its position) -> the token that follows. May raise, to test how errors travel."""

PEAK = 10.0
"""Logit of the scripted token; all others lie in [0, 1) by a hash of the context."""
_HASH_BASE = np.uint64(0x9E3779B97F4A7C15)


def counting(config: ModelConfig) -> NextToken:
    """The default script: id + 1, wrapping around, never an end-of-sequence id."""
    ends = frozenset(config.eos_token_ids)

    def following(token: int, position: int) -> int:
        for step in range(1, config.vocab_size + 1):
            candidate = (token + step) % config.vocab_size
            if candidate not in ends:
                return candidate
        return token

    return following


class NullBackend(Backend):
    """next_token: the script; None counts up. step_s: seconds that each step pretends to take."""

    name = "null"

    def __init__(self, next_token: NextToken | None = None, step_s: float = 0.0) -> None:
        self._next_token = next_token
        self._step_s = step_s

    def plan(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> MemoryPlan:
        return _plan(config, options)

    def compile(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Executable:
        script = self._next_token or counting(config)
        return NullExecutable(config, options, script, self._step_s)


class NullExecutable(Executable):
    """Remembers tokens by slot; `steps` keeps the number of tokens of each step, for tests."""

    def __init__(
        self, config: ModelConfig, options: BackendOptions, script: NextToken, step_s: float
    ) -> None:
        self.config = config
        self.block_size = options.block_size
        self.plan = _plan(config, options)
        self.prompts_differ = options.products == "mixed"
        self.steps: list[int] = []
        self._options = options
        self._script = script
        self._step_s = step_s
        self._noise = np.random.default_rng(0).random(config.vocab_size, np.float32)
        self.adapters: dict[int, Adapter] = {}
        self.allocate_kv(0)

    def load_adapter(self, number: int, adapter: Adapter) -> None:
        self.adapters[number] = adapter

    def unload_adapter(self, number: int) -> None:
        self.adapters.pop(number, None)

    def allocate_kv(self, num_blocks: int) -> None:
        slots = num_blocks * self.block_size
        self._num_blocks = num_blocks
        self._tokens = np.full(slots, -1, np.int32)
        self._positions = np.full(slots, -1, np.int32)

    def forward(self, step: Step) -> Floats:
        check_step(step, self._limits())
        if step.adapters is not None:
            unknown = set(step.adapters.tolist()) - {-1, *self.adapters}
            if unknown:
                raise BackendError(f"null: adapters {sorted(unknown)} are not loaded")
        time.sleep(self._step_s)
        self.steps.append(len(step.tokens))
        mark = self.config.vocab_size if self.prompts_differ and step.of_prompts else 0
        self._tokens[step.slots] = step.tokens + mark
        self._positions[step.slots] = step.positions
        hashes = self._context_hashes(step)
        rows = [self._logits(step, int(row), hashes[row]) for row in step.logit_rows]
        return np.stack(rows) if rows else np.empty((0, self.config.vocab_size), np.float32)

    def step(self, step: Step, sampling: SamplingBatch) -> SampleResult:
        from octavo.decoding import sample_batch

        return sample_batch(self.forward(step), sampling)

    def copy_blocks(self, pairs: Ints) -> None:
        check_pairs(pairs, self._num_blocks)
        for store in (self._tokens, self._positions):
            blocks = store.reshape(self._num_blocks, self.block_size)
            blocks[pairs[:, 1]] = blocks[pairs[:, 0]]

    def _limits(self) -> StepLimits:
        o = self._options
        vocab = self.config.vocab_size
        return StepLimits(o.max_tokens, o.max_seqs, o.block_size, self._num_blocks, vocab)

    def _logits(self, step: Step, row: int, context: int) -> Floats:
        logits = np.roll(self._noise, context % self.config.vocab_size)
        chosen = self._script(int(step.tokens[row]), int(step.positions[row]))
        logits[chosen] = PEAK
        return logits

    def _context_hashes(self, step: Step) -> list[int]:
        """Per token, a hash of all tokens up to it, read from the cache."""
        hashes: list[int] = []
        for s, length in enumerate(step.seq_len):
            tokens = self._read(step.block_table[s], int(length))
            count = int(step.query_start[s + 1] - step.query_start[s])
            hashes += [int(h) for h in _prefix_hashes(tokens)[-count:]]
        return hashes

    def _read(self, blocks: Ints, length: int) -> Ints:
        positions = np.arange(length)
        slots = blocks[positions // self.block_size] * self.block_size
        slots = slots + positions % self.block_size
        wrong = np.flatnonzero(self._positions[slots] != positions)
        if wrong.size:
            at = int(wrong[0])
            raise BackendError(
                f"null: slot {slots[at]} is read as position {at}: "
                f"got position {self._positions[slots[at]]} (-1: never written), expected {at}"
            )
        return self._tokens[slots]


def _prefix_hashes(tokens: Ints) -> NDArray[np.uint64]:
    """[n]: a polynomial hash of tokens[:i + 1], modulo 2^64 and its high half taken."""
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(tokens), _HASH_BASE, np.uint64), dtype=np.uint64)
        sums = np.cumsum((tokens.astype(np.uint64) + np.uint64(1)) * powers, dtype=np.uint64)
    return sums >> np.uint64(32)


def _plan(config: ModelConfig, options: BackendOptions) -> MemoryPlan:
    arena = 4 * options.max_seqs * config.vocab_size
    return MemoryPlan(weight_bytes=0, arena_bytes=arena, kv_bytes_per_block=8 * options.block_size)

"""Steps over shuffled blocks, and whole sequences fed in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Executable, Floats, Ints, Step


@dataclass
class PagedSequences:
    """Block tables of some sequences over a pool whose order is shuffled, as it is in real use.

    Blocks are taken from the pool as a sequence grows; `lengths` counts its cached tokens.
    """

    block_size: int
    num_blocks: int
    seed: int = 0
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = np.random.default_rng(self.seed).permutation(self.num_blocks)
        self._free = [int(block) for block in order]
        self._tables: list[list[int]] = []

    def open(self) -> int:
        """A new empty sequence; returns its number."""
        self._tables.append([])
        self.lengths.append(0)
        return len(self._tables) - 1

    def step(self, new: dict[int, Sequence[int]], rows: Sequence[int] | None = None) -> Step:
        """One step that appends tokens to some sequences, in the order of `new`.

        rows: which of the T rows give logits; None gives all.
        """
        parts = [self._append(sequence, len(tokens)) for sequence, tokens in new.items()]
        total = sum(len(tokens) for tokens in new.values())
        starts = np.cumsum([0] + [len(tokens) for tokens in new.values()])
        return Step(
            tokens=_ints([token for tokens in new.values() for token in tokens]),
            positions=_ints(np.concatenate([positions for positions, _ in parts])),
            slots=_ints(np.concatenate([slots for _, slots in parts])),
            query_start=_ints(starts),
            seq_len=_ints([self.lengths[sequence] for sequence in new]),
            block_table=self._table(list(new)),
            logit_rows=_ints(range(total) if rows is None else rows),
        )

    def _append(self, sequence: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        table = self._tables[sequence]
        positions = np.arange(self.lengths[sequence], self.lengths[sequence] + count)
        self.lengths[sequence] += count
        while len(table) * self.block_size < self.lengths[sequence]:
            table.append(self._free.pop())
        blocks = np.array(table)[positions // self.block_size]
        return positions, blocks * self.block_size + positions % self.block_size

    def _table(self, sequences: list[int]) -> Ints:
        width = max(len(self._tables[sequence]) for sequence in sequences)
        padded = [self._tables[s] + [0] * (width - len(self._tables[s])) for s in sequences]
        return _ints(padded)


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(np.asarray(values, dtype=np.int32))


def run_tokens(executable: Executable, tokens: Sequence[int], chunk: int) -> Floats:
    """Logits [len(tokens), vocab] of one sequence, fed in chunks; replaces the KV memory."""
    blocks = -(-len(tokens) // executable.block_size) + 3
    executable.allocate_kv(blocks)
    paged = PagedSequences(executable.block_size, blocks)
    paged.open()
    chunks = [tokens[start : start + chunk] for start in range(0, len(tokens), chunk)]
    parts = [executable.forward(paged.step({0: part})).copy() for part in chunks]
    return np.concatenate(parts)


def run_greedy(executable: Executable, prompt: Sequence[int], count: int) -> list[int]:
    """The `count` most likely next tokens after a prompt, one by one, ties to the lowest id."""
    blocks = -(-(len(prompt) + count) // executable.block_size) + 3
    executable.allocate_kv(blocks)
    paged = PagedSequences(executable.block_size, blocks)
    paged.open()
    tokens: list[int] = []
    new = list(prompt)
    while len(tokens) < count:
        logits = executable.forward(paged.step({0: new}, rows=[len(new) - 1]))
        new = [int(logits[0].argmax())]
        tokens += new
    return tokens

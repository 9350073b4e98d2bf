"""Turns a schedule into the arrays of a `Step`, in buffers made once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Ints, Step
from octavo.cache import BlockTable
from octavo.engine.sample import Sample
from octavo.scheduler import Chunk


class StepBuilder:
    """Buffers for up to max_tokens tokens, max_rows sequences and rows, max_blocks blocks each.

    The arrays of a built Step are views of these buffers, valid until the next build. Block tables
    are mirrored per row and rewritten only when a table's version has changed. A step that decodes
    the same sequences as the step before it is made from that one in place: native code has just
    swept the caches, and every array operation less is felt.
    """

    def __init__(self, max_tokens: int, max_rows: int, max_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._tokens = _ints(max_tokens)
        self._positions = _ints(max_tokens)
        self._slots = _ints(max_tokens)
        self._count = np.arange(max(max_tokens, max_blocks * block_size) + 1, dtype=np.int32)
        self._query_start = _ints(max_rows + 1)
        self._seq_len = _ints(max_rows)
        self._logit_rows = _ints(max(max_rows, max_tokens))
        self._tables = np.zeros((max_rows, max_blocks), dtype=np.int32)
        self._versions = [-1] * max_rows
        self._gathered = _ints(max_rows * max_blocks)
        self._max_blocks = max_blocks
        arrays = (self._tokens, self._positions, self._slots, self._seq_len)
        self._views = [array.data for array in arrays]
        self._last: Step | None = None  # the step before, if it only decoded
        self._last_decodes: list[Sample] = []

    def forget(self, row: int) -> None:
        """Another sequence has got this row."""
        self._versions[row] = -1
        self._last = None

    def build(
        self, decodes: list[Sample], chunks: list[Chunk[Sample]], of_prompts: bool = False
    ) -> Step:
        """Arrays for decodes first, then chunks. Sampled positions get logit rows, one for each
        sample that draws there; a scoring chunk gets one for each of its positions."""
        if self._last is not None and not chunks and decodes == self._last_decodes:
            return self._again(self._last)
        step = self._build(decodes, chunks)
        step.of_prompts = of_prompts
        self._last = None if chunks else step
        self._last_decodes = list(decodes)
        return step

    def _build(self, decodes: list[Sample], chunks: list[Chunk[Sample]]) -> Step:
        self._decodes(decodes)
        rows = [s.row for s in decodes]
        logit_rows = list(range(len(decodes)))
        end = len(decodes)
        for chunk in chunks:
            rows.append(chunk.sequence.row)
            start, end = end, end + chunk.count
            self._chunk(chunk, start, len(rows))
            if chunk.score:
                logit_rows.extend(range(start, end))
            elif chunk.samples:
                logit_rows.extend([end - 1] * chunk.sequence.width)
        self._logit_rows[: len(logit_rows)] = logit_rows
        return Step(
            tokens=self._tokens[:end],
            positions=self._positions[:end],
            slots=self._slots[:end],
            query_start=self._query_start[: len(rows) + 1],
            seq_len=self._seq_len[: len(rows)],
            block_table=self._gather(rows),
            logit_rows=self._logit_rows[: len(logit_rows)],
            adapters=_adapters([*decodes, *(chunk.sequence for chunk in chunks)]),
        )

    def lone(
        self, ids: list[int], table: BlockTable, start: int, count: int, skip: int = 0
    ) -> Step:
        """A step for one prompt outside the schedule, with logits of all but `skip` positions."""
        self._last = None
        blocks = np.array(table.blocks, dtype=np.int32)
        self._span(ids, blocks, start, count, 0)
        end = start + count
        return Step(
            tokens=self._tokens[:count],
            positions=self._positions[:count],
            slots=self._slots[:count],
            query_start=np.array([0, count], dtype=np.int32),
            seq_len=np.array([end], dtype=np.int32),
            block_table=blocks[None, : -(-end // self._block_size)].copy(),
            logit_rows=np.arange(skip, count, dtype=np.int32),
            of_prompts=True,
        )

    def _again(self, step: Step) -> Step:
        """The next decode of the same sequences, number by number: cheaper than array operations
        for as many rows as a CPU serves."""
        tokens, positions, slots, lengths = self._views
        size, versions = self._block_size, self._versions
        for i, s in enumerate(self._last_decodes):
            ids, table = s.ids, s.table
            at = len(ids) - 1
            tokens[i] = ids[at]
            positions[i] = at
            lengths[i] = at + 1
            slots[i] = table.blocks[at // size] * size + at % size
            if versions[s.row] != table.version:
                self._renew(step, i, s)
        return step

    def _renew(self, step: Step, i: int, sample: Sample) -> None:
        """A sequence's blocks have changed: renew its row of the block table."""
        self._mirror(sample.row, sample.table)
        if len(sample.table.blocks) > step.block_table.shape[1]:
            step.block_table = self._gather([d.row for d in self._last_decodes])
        step.block_table[i] = self._tables[sample.row, : step.block_table.shape[1]]

    def _decodes(self, decodes: list[Sample]) -> None:
        n, size = len(decodes), self._block_size
        versions = self._versions
        for s in decodes:
            if versions[s.row] != s.table.version:
                self._mirror(s.row, s.table)
        at = [len(s.ids) - 1 for s in decodes]
        self._tokens[:n] = [s.ids[-1] for s in decodes]
        self._positions[:n] = at
        self._slots[:n] = [
            s.table.blocks[p // size] * size + p % size for s, p in zip(decodes, at, strict=True)
        ]
        np.add(self._positions[:n], 1, out=self._seq_len[:n])
        self._query_start[: n + 1] = self._count[: n + 1]

    def _chunk(self, chunk: Chunk[Sample], at: int, num_rows: int) -> None:
        sequence = chunk.sequence
        if self._versions[sequence.row] != sequence.table.version:
            self._mirror(sequence.row, sequence.table)
        blocks = self._tables[sequence.row]
        self._span(sequence.ids, blocks, chunk.start, chunk.count, at)
        self._query_start[num_rows] = at + chunk.count
        self._seq_len[num_rows - 1] = chunk.start + chunk.count

    def _span(self, ids: list[int], blocks: Ints, start: int, count: int, at: int) -> None:
        """Tokens, positions and slots of ids[start : start + count], from index `at` on."""
        positions = self._count[start : start + count]
        self._tokens[at : at + count] = ids[start : start + count]
        self._positions[at : at + count] = positions
        block, offset = np.divmod(positions, self._block_size)
        self._slots[at : at + count] = blocks[block] * self._block_size + offset

    def _mirror(self, row: int, table: BlockTable) -> None:
        self._tables[row, : len(table.blocks)] = table.blocks
        self._tables[row, len(table.blocks) :] = 0
        self._versions[row] = table.version

    def _gather(self, rows: list[int]) -> Ints:
        """Block tables of these rows, [S, B], B a little wider than the longest sequence needs."""
        if not rows:
            return self._gathered[:0].reshape(0, 0)
        longest = int(self._seq_len[: len(rows)].max())
        width = min(self._max_blocks, longest // self._block_size + 8)  # room for steps like it
        out = self._gathered[: len(rows) * width].reshape(len(rows), width)
        np.take(self._tables[:, :width], rows, axis=0, out=out, mode="clip")
        return out


def _ints(count: int) -> NDArray[np.int32]:
    return np.zeros(count, dtype=np.int32)


def _adapters(samples: list[Sample]) -> Ints | None:
    """The adapter of each sequence, if any has one."""
    numbers = [sample.adapter for sample in samples]
    return np.array(numbers, np.int32) if any(number >= 0 for number in numbers) else None

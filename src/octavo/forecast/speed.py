"""The speed of a load: a few steps of it, rehearsed without the weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from octavo.backends.base import Rehearsal, Step
from octavo.decoding import SamplingParams
from octavo.decoding.batch import SamplingBatch
from octavo.decoding.build import SamplingRow, build_batch
from octavo.engine.loading import Opened
from octavo.forecast.load import Load
from octavo.forecast.memory import blocks

MOST_KV = 1 << 30
"""Bytes of keys and values laid out to be read; with more, fewer requests are timed."""

REPEAT = 5


@dataclass(frozen=True)
class Speed:
    """prefill_tps: prompt tokens a second of one request; ttft_s: until its first token, or its
    vector. decode_tps: output tokens a second of one request alone; total_tps: of all at once; None
    for a model that writes none."""

    prefill_tps: float
    ttft_s: float
    decode_tps: float | None = None
    total_tps: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def rehearse(opened: Opened, load: Load) -> Speed:
    """Raises UnsupportedError where the backend cannot forecast."""
    model = (opened.graph, opened.checkpoint, opened.config, opened.settings)
    rehearsal = opened.backend.rehearse(*model)
    try:
        return _Stage(opened, load, rehearsal).speed()
    finally:
        rehearsal.close()


class _Stage:
    """One rehearsal with its keys and values laid out."""

    def __init__(self, opened: Opened, load: Load, rehearsal: Rehearsal) -> None:
        self.load, self.rehearsal = load, rehearsal
        self.every_row = opened.options.task == "embed"
        self.block = opened.settings.block_size
        self.budget = opened.settings.max_tokens
        self.width = blocks(load.context, self.block)
        per_request = self.width * max(1, opened.memory_plan.kv_bytes_per_block)
        most = max(1, MOST_KV // per_request)
        self.streams = min(load.concurrency, opened.settings.max_seqs, most)
        self._lay_out()

    def speed(self) -> Speed:
        ttft = self._prompt_s()
        if not self.load.output:
            return Speed(self.load.prompt / ttft, ttft)
        alone, together = self._decode_s(1), self._decode_s(self.streams)
        rate = self.streams / together
        return Speed(self.load.prompt / ttft, ttft, 1 / alone, max(rate, 1 / alone))

    def _lay_out(self) -> None:
        """Memory of its own for every block, which zeros never written to would not have."""
        count = self.streams * self.width
        self.rehearsal.executable.allocate_kv(count)
        self.rehearsal.executable.forward(self._step(0, 1, self.block, of_prompts=True))
        pairs = np.array([(0, i) for i in range(1, count)], dtype=np.int32).reshape(-1, 2)
        self.rehearsal.executable.copy_blocks(pairs)

    def _prompt_s(self) -> float:
        """Chunks cost more the more came before them, in a straight line: the first and the last
        full one tell of all."""
        size = min(self.budget, self.load.prompt)
        first = self._seconds(0, size)
        count = self.load.prompt / size
        if count <= 1:
            return first
        last = self._seconds(self.load.prompt - size, size)
        return count * (first + last) / 2

    def _seconds(self, start: int, count: int) -> float:
        sampling = _greedy(1) if self.load.output else None
        step = self._step(start, 1, count, of_prompts=True)
        return self.rehearsal.step_s(step, sampling, REPEAT)

    def _decode_s(self, streams: int) -> float:
        step = self._step(self.load.middle - 1, streams, 1)
        return self.rehearsal.step_s(step, _greedy(streams), 3 * REPEAT)

    def _step(self, start: int, streams: int, count: int, of_prompts: bool = False) -> Step:
        """`count` tokens for each of some requests that have `start`. One row of logits each, or
        all rows where vectors are pooled from them."""
        width = blocks(start + count, self.block)
        table = np.arange(streams * self.width, dtype=np.int32).reshape(streams, self.width)
        positions = np.arange(start, start + count, dtype=np.int32)
        slots = table[:, positions // self.block] * self.block + positions % self.block
        ends = np.arange(1, streams + 1, dtype=np.int32) * count
        return Step(
            tokens=np.zeros(streams * count, np.int32),
            positions=np.tile(positions, streams),
            slots=slots.astype(np.int32).reshape(-1),
            query_start=np.concatenate([[0], ends]).astype(np.int32),
            seq_len=np.full(streams, start + count, np.int32),
            block_table=table[:, :width].copy(),
            logit_rows=np.arange(ends[-1], dtype=np.int32) if self.every_row else ends - 1,
            of_prompts=of_prompts,
        )


def _greedy(rows: int) -> SamplingBatch:
    params = SamplingParams(temperature=0.0)
    return build_batch([SamplingRow(params, 0, (), ())] * rows)

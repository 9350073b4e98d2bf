"""The sampling parameters of running samples, kept in arrays and gathered for each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.decoding.batch import SamplingBatch
from octavo.engine.sample import Sample
from octavo.engine.token_masks import TokenMasks, needs_mask
from octavo.records import replace

_NO_INTS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_NO_FLOATS: NDArray[np.float32] = np.zeros(0, dtype=np.float32)


class SamplingRows:
    """One array element per row of the batch, written when a sample gets the row.

    While the drawing rows stay the same, as in steady decoding, only counters are renewed.
    """

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._temperature = np.zeros(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int32)
        self._top_p = np.zeros(max_rows, dtype=np.float32)
        self._min_p = np.zeros(max_rows, dtype=np.float32)
        self._repetition = np.zeros(max_rows, dtype=np.float32)
        self._presence = np.zeros(max_rows, dtype=np.float32)
        self._frequency = np.zeros(max_rows, dtype=np.float32)
        self._seed = np.zeros(max_rows, dtype=np.uint64)
        self._num_logprobs = np.zeros(max_rows, dtype=np.int32)
        self._rows: list[int] | None = None
        self._batch: SamplingBatch | None = None
        self._penalised: list[Sample] = []
        self._banning: list[Sample] = []
        self._masked = False
        self._masks = TokenMasks(vocab_size)

    def admit(self, sample: Sample) -> None:
        """A sample has got a row: write its parameters there."""
        row, params = sample.row, sample.params
        self._temperature[row] = params.temperature
        self._top_k[row] = max(0, params.top_k)
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._repetition[row] = params.repetition_penalty
        self._presence[row] = params.presence_penalty
        self._frequency[row] = params.frequency_penalty
        self._seed[row] = sample.seed
        self._num_logprobs[row] = min(params.num_top, self._vocab_size)
        self._rows = None

    def batch(self, drawing: list[Sample]) -> SamplingBatch:
        """The sampling work of one step; row r of it is drawing[r]. Valid until the next call."""
        rows = [s.row for s in drawing]
        if self._batch is None or rows != self._rows:
            self._batch = self._gather(rows, drawing)
            self._rows = rows
        batch = self._batch
        counter = batch.counter.data
        for i, s in enumerate(drawing):
            counter[i] = len(s.ids) - s.num_prompt
        if self._penalised:
            batch = self._with_history(batch, drawing)
        if self._banning:
            batch = self._with_bans(batch, drawing)
        if self._masked:
            batch = replace(batch, mask=self._masks.fill(drawing))
        return batch

    def _gather(self, rows: list[int], drawing: list[Sample]) -> SamplingBatch:
        at = np.array(rows, dtype=np.intp)
        self._penalised = [s for s in drawing if s.penalised]
        self._banning = [s for s in drawing if s.may_ban]
        self._masked = any(needs_mask(s) for s in drawing)
        none = np.zeros(len(rows) + 1, dtype=np.int32)
        listed = [s.params.logprob_token_ids for s in drawing]
        listed_ids = np.array([i for ids in listed for i in ids], dtype=np.int32)
        bias_ids, bias_values, bias_start = _biases(drawing) or (_NO_INTS, _NO_FLOATS, none)
        return SamplingBatch(
            temperature=self._temperature[at],
            top_k=self._top_k[at],
            top_p=self._top_p[at],
            min_p=self._min_p[at],
            repetition_penalty=self._repetition[at],
            presence_penalty=self._presence[at],
            frequency_penalty=self._frequency[at],
            seed=self._seed[at],
            counter=np.zeros(len(rows), dtype=np.int32),
            num_logprobs=self._num_logprobs[at],
            history=_NO_INTS,
            history_start=none,
            prompt_count=np.zeros(len(rows), dtype=np.int32),
            bias_ids=bias_ids,
            bias_values=bias_values,
            bias_start=bias_start,
            banned=_NO_INTS,
            banned_start=none,
            listed=listed_ids,
            listed_start=_starts([len(ids) for ids in listed]) if len(listed_ids) else none,
        )

    def _with_history(self, batch: SamplingBatch, drawing: list[Sample]) -> SamplingBatch:
        parts = [s.history() if s.penalised else _NO_INTS for s in drawing]
        prompt = [s.num_prompt if s.penalised else 0 for s in drawing]
        return replace(
            batch,
            history=np.concatenate(parts),
            history_start=_starts([len(part) for part in parts]),
            prompt_count=np.array(prompt, dtype=np.int32),
        )

    def _with_bans(self, batch: SamplingBatch, drawing: list[Sample]) -> SamplingBatch:
        banned = [s.bans() for s in drawing]
        return replace(
            batch,
            banned=np.array([i for ids in banned for i in ids], dtype=np.int32),
            banned_start=_starts([len(ids) for ids in banned]),
        )


def _biases(
    drawing: list[Sample],
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]] | None:
    biases = [s.params.logit_bias for s in drawing]
    if not any(biases):
        return None
    ids = np.array([i for bias in biases for i in bias], dtype=np.int32)
    values = np.array([v for bias in biases for v in bias.values()], dtype=np.float32)
    return ids, values, _starts([len(bias) for bias in biases])


def _starts(lengths: list[int]) -> NDArray[np.int32]:
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts

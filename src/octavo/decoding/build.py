"""Builds a SamplingBatch from the requests of one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.decoding.batch import SamplingBatch
from octavo.decoding.params import SamplingParams

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads small indices over all bits
_MASK = 2**64 - 1


def sample_seed(seed: int, index: int) -> int:
    """The 64-bit seed of sample `index` of a request; index 0 keeps the request's own."""
    return (seed + index * _GOLDEN) & _MASK


class SamplingRow(Struct):
    """What one row's draw depends on. `output_ids` are the tokens of this sample so far; their
    number is the draw's counter. banned_ids are those that must not come now (min_tokens)."""

    params: SamplingParams
    seed: int
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    banned_ids: Sequence[int] = ()

    @property
    def penalises(self) -> bool:
        """Whether the row's history matters."""
        p = self.params
        return (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) != (1.0, 0.0, 0.0)


def build_batch(
    rows: Sequence[SamplingRow], mask: NDArray[np.uint32] | None = None
) -> SamplingBatch:
    """One batch row per element of `rows`, in order. History is copied only where it matters."""
    params = [row.params for row in rows]
    history: list[int] = []
    history_start, prompt_count = [0], []
    for row in rows:
        if row.penalises:
            history.extend(row.prompt_ids)
            history.extend(row.output_ids)
        prompt_count.append(len(row.prompt_ids) if row.penalises else 0)
        history_start.append(len(history))
    return SamplingBatch(
        temperature=_floats(p.temperature for p in params),
        top_k=_ints(max(p.top_k, 0) for p in params),
        top_p=_floats(p.top_p for p in params),
        min_p=_floats(p.min_p for p in params),
        repetition_penalty=_floats(p.repetition_penalty for p in params),
        presence_penalty=_floats(p.presence_penalty for p in params),
        frequency_penalty=_floats(p.frequency_penalty for p in params),
        seed=np.array([row.seed & _MASK for row in rows], dtype=np.uint64),
        counter=_ints(len(row.output_ids) for row in rows),
        num_logprobs=_ints(p.num_top for p in params),
        history=_ints(history),
        history_start=_ints(history_start),
        prompt_count=_ints(prompt_count),
        bias_ids=_ints(i for p in params for i in p.logit_bias),
        bias_values=_floats(v for p in params for v in p.logit_bias.values()),
        bias_start=_starts([len(p.logit_bias) for p in params]),
        banned=_ints(i for row in rows for i in row.banned_ids),
        banned_start=_starts([len(row.banned_ids) for row in rows]),
        listed=_ints(i for p in params for i in p.logprob_token_ids),
        listed_start=_starts([len(p.logprob_token_ids) for p in params]),
        mask=mask,
    )


def _ints(values: Iterable[int]) -> NDArray[np.int32]:
    return np.fromiter(values, dtype=np.int32)


def _floats(values: Iterable[float]) -> NDArray[np.float32]:
    return np.fromiter(values, dtype=np.float32)


def _starts(lengths: list[int]) -> NDArray[np.int32]:
    starts: NDArray[Any] = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts

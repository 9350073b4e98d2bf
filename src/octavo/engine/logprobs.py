"""Log-probabilities as they are shown: by token id, the chosen one first."""

from __future__ import annotations

import numpy as np

from octavo.backends.base import Floats
from octavo.decoding.batch import SampleResult
from octavo.decoding.params import SamplingParams
from octavo.engine.types import Logprob, TokenLogprobs
from octavo.tokenizer.base import Tokenizer


def sampled_logprobs(
    result: SampleResult, row: int, params: SamplingParams, tokenizer: Tokenizer | None
) -> TokenLogprobs:
    """The token drawn in a row, then those that params ask for: the most likely ones, or a list."""
    token = int(result.ids[row])
    chosen = Logprob(float(result.logprobs[row]), int(result.ranks[row]), _text(tokenizer, token))
    shown = {token: chosen}
    listed = params.logprob_token_ids
    for other, logprob in zip(listed, result.listed_logprobs[row].tolist(), strict=False):
        if other != token:
            shown[other] = Logprob(logprob, None, _text(tokenizer, other))
    wanted = params.num_top
    top = zip(result.top_ids[row, :wanted], result.top_logprobs[row, :wanted], strict=True)
    for rank, (other, logprob) in enumerate(top, 1):
        if other >= 0 and int(other) != token:
            shown[int(other)] = Logprob(float(logprob), rank, _text(tokenizer, int(other)))
    return shown


def score_tokens(
    logits: Floats, tokens: list[int], wanted: int, tokenizer: Tokenizer | None
) -> list[TokenLogprobs | None]:
    """For each row of logits [n, vocab]: the given token, then the `wanted` most likely ones."""
    return [
        _score(row, token, wanted, tokenizer) for row, token in zip(logits, tokens, strict=True)
    ]


def _score(row: Floats, token: int, wanted: int, tokenizer: Tokenizer | None) -> TokenLogprobs:
    peak = row.max()
    normalizer = float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))
    value = row[token]
    rank = 1 + int((row > value).sum()) + int((row[:token] == value).sum())
    shown = {token: Logprob(float(value) - normalizer, rank, _text(tokenizer, token))}
    for place, other in enumerate(_best(row, wanted), 1):
        if other != token:
            logprob = float(row[other]) - normalizer
            shown[other] = Logprob(logprob, place, _text(tokenizer, other))
    return shown


def _best(row: Floats, count: int) -> list[int]:
    """Ids of the `count` largest logits, largest first; ties by id."""
    count = min(count, len(row))
    if count == 0:
        return []
    bound = np.partition(row, -count)[-count]
    ids = np.flatnonzero(row >= bound)
    order = np.lexsort((ids, -row[ids]))
    return [int(i) for i in ids[order[:count]]]


def _text(tokenizer: Tokenizer | None, token: int) -> str | None:
    return None if tokenizer is None else tokenizer.token_bytes(token).decode("utf-8", "replace")

"""Which tokens each row of a step may draw."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from octavo.decoding.matcher import Masks
from octavo.engine.sample import RequestState, Sample
from octavo.errors import InvalidParameterError

_ALL = np.uint32(0xFFFFFFFF)


def needs_mask(sample: Sample) -> bool:
    """Whether some tokens are closed to the sample."""
    narrowed = sample.matcher is not None or sample.params.allowed_token_ids is not None
    return narrowed or sample.thinking is not None


def closed_by(sample: Sample, why: str | None) -> InvalidParameterError | None:
    """The request's own error where its masks or bans are why no token could be drawn."""
    params = sample.params
    if params.grammar is not None:
        said = sample.matcher.error if sample.matcher is not None else None
        return InvalidParameterError(params.grammar.param, said or f"cannot go on; {why}")
    if sample.thinking is not None and sample.thinking.forced is not None:
        return InvalidParameterError("thinking_budget", f"thinking cannot be ended; {why}")
    if params.allowed_token_ids is not None:
        return InvalidParameterError("allowed_token_ids", f"no token can be drawn; {why}")
    return None


class TokenMasks:
    """One buffer for all steps, as large as the largest step needed."""

    def __init__(self, vocab_size: int) -> None:
        self._num_words = (vocab_size + 31) // 32
        self._buffer: Masks = np.zeros((0, self._num_words), dtype=np.uint32)
        self._allowed: WeakKeyDictionary[RequestState, NDArray[np.uint32]] = WeakKeyDictionary()

    def fill(self, drawing: list[Sample]) -> Masks:
        """Masks [len(drawing), words] for these samples, valid until the next call. A row without
        a grammar allows everything, one whose grammar failed nothing."""
        if len(self._buffer) < len(drawing):
            self._buffer = np.zeros((2 * len(drawing), self._num_words), dtype=np.uint32)
        masks = self._buffer[: len(drawing)]
        for row, sample in enumerate(drawing):
            if sample.matcher is None:
                masks[row] = _ALL
            else:
                sample.matcher.fill(masks, row)
            if sample.params.allowed_token_ids is not None:
                masks[row] &= self._allowed_words(sample.state)
            if sample.thinking is not None and (forced := sample.thinking.forced) is not None:
                word, bit = forced // 32, np.uint32(1 << forced % 32)
                kept = masks[row, word] & bit
                masks[row] = 0
                masks[row, word] = kept
        return masks

    def _allowed_words(self, state: RequestState) -> NDArray[np.uint32]:
        """The request's allowed_token_ids as a mask, worked out once."""
        if (words := self._allowed.get(state)) is None:
            ids = np.array(state.request.params.allowed_token_ids, dtype=np.int64)
            bits = np.zeros(self._num_words * 32, dtype=np.uint8)
            bits[ids] = 1
            words = np.packbits(bits, bitorder="little").view(np.uint32)
            self._allowed[state] = words
        return words

"""Which tokens each row of a step may draw."""

from __future__ import annotations

import numpy as np

from octavo.decoding.matcher import Masks
from octavo.engine.sample import Sample

_ALL = np.uint32(0xFFFFFFFF)


class TokenMasks:
    """One buffer for all steps, as large as the largest step needed."""

    def __init__(self, vocab_size: int) -> None:
        self._num_words = (vocab_size + 31) // 32
        self._buffer: Masks = np.zeros((0, self._num_words), dtype=np.uint32)

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
        return masks

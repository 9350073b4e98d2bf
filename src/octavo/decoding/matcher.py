"""How far one answer has come in its grammar, and which tokens may follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLMatcher

Masks = NDArray[np.uint32]
"""[rows, ceil(V / 32)]; bit i % 32 of word i // 32 says whether token i is allowed."""


class Matcher:
    """Not safe to share between threads. Once `error` is set nothing matches any more."""

    __slots__ = ("_inner", "_num_words", "_vocab_size", "error")

    def __init__(self, inner: LLMatcher, vocab_size: int) -> None:
        self._inner = inner
        self._vocab_size = vocab_size
        self._num_words = (vocab_size + 31) // 32
        self.error: str | None = None

    @property
    def can_end(self) -> bool:
        """Whether the text so far is a whole answer."""
        return self.error is None and self._inner.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole and nothing can follow."""
        return self.error is None and self._inner.is_stopped() and not self._inner.is_error()

    def advance(self, tokens: Iterable[int]) -> None:
        """Take tokens that a mask allowed; sets `error` if one does not fit."""
        for token in tokens:
            if self.error is None and not self._inner.consume_token(token):
                self._fail()

    def try_advance(self, token: int) -> bool:
        """Take a token if it fits."""
        return self.error is None and self._inner.try_consume_tokens([token]) == 1

    def fill(self, masks: Masks, row: int) -> None:
        """Write the tokens that may come next into a row of C-contiguous masks; none of them after
        an error. End-of-sequence is among them exactly where `can_end`."""
        line = masks[row]
        if self.error is None:
            self._inner.unsafe_compute_mask_ptr(line.ctypes.data, line.nbytes)
            if self._inner.is_error():
                self._fail()
        if self.error is not None:
            line[:] = 0

    def _fail(self) -> None:
        said = " ".join(self._inner.get_error().split()) or "a token does not fit"
        self.error = said[:300]

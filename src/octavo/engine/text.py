"""A sample's ids as text that is safe to show: whole characters, no part of a stop string."""

from __future__ import annotations

from octavo.decoding.detokenizer import Detokenizer
from octavo.decoding.params import SamplingParams
from octavo.decoding.stops import StopMatcher
from octavo.tokenizer.base import Tokenizer


class TextStream:
    """Incremental detokenization, then the search for stop strings."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._detokenizer = Detokenizer(
            tokenizer, params.skip_special_tokens, shown=params.shown_special_ids
        )
        self._decode = self._detokenizer.push
        self._matcher = (
            StopMatcher(params.stop, params.include_stop_str_in_output) if params.stop else None
        )

    def push(self, token: int, may_stop: bool = True) -> tuple[str, str | None]:
        """Text that became safe with this token, and the stop string it completed, if any.

        With may_stop False (before min_tokens) the text is shown without looking for stops.
        """
        text = self._decode((token,))
        if self._matcher is None or not may_stop:
            return text, None
        return self._matcher.push(text)

    def finish(self) -> tuple[str, str | None]:
        """What was held back, once no more tokens come; a stop string may still end in it."""
        tail = self._detokenizer.finish()
        if self._matcher is None:
            return tail, None
        text, matched = self._matcher.push(tail)
        return (text, matched) if matched is not None else (text + self._matcher.finish(), None)

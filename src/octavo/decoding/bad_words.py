"""Words that an answer must not contain."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.tokenizer.base import Tokenizer


class BadWords:
    """Words as token sequences, each as it is written at the start of a text and after a space.

    A sequence is kept out by banning its last token wherever the output ends with the rest, as
    vLLM does. A model may still spell a word in other tokens.
    """

    def __init__(self, tokenizer: Tokenizer, words: Sequence[str]) -> None:
        self._endings: list[tuple[list[int], int]] = []
        forms = [form for word in words for form in (word, " " + word.lstrip())]
        for form in dict.fromkeys(forms):
            ids = tokenizer.encode(form, add_special_tokens=False, parse_special=False)
            if ids:
                self._endings.append((ids[:-1], ids[-1]))

    def after(self, ids: Sequence[int], start: int) -> list[int]:
        """Tokens that would complete a word after the output ids[start:]."""
        room = len(ids) - start
        return [
            last
            for rest, last in self._endings
            if not rest or (len(rest) <= room and list(ids[-len(rest) :]) == rest)
        ]

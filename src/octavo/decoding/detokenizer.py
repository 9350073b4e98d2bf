"""Incremental detokenization: ids in as they come, whole characters out."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from octavo.tokenizer import Tokenizer

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """One growing text. Concatenating every `push` and the `finish` gives what decoding all ids at
    once gives; a character split over tokens is held back until it is whole.

    shown: special tokens that are not skipped. at_start: the ids begin a text, so the space an SPM
    encoder puts before it is dropped. Leave it off where they continue a prompt, as generated
    tokens do: there that space is real.
    Not safe to share between threads. Cost is proportional to the new ids.
    """

    __slots__ = ("_bytes_of", "_decode", "_strip_space")

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        *,
        shown: Iterable[int] = (),
        at_start: bool = False,
    ) -> None:
        table = tokenizer.piece_bytes(skip_special_tokens, frozenset(shown))
        self._bytes_of = table.__getitem__
        self._decode = _Utf8Decoder("replace").decode
        self._strip_space = at_start and tokenizer.strip_space

    def push(self, ids: Iterable[int]) -> str:
        """Text that became certain with these ids; may be empty."""
        text = self._decode(b"".join(map(self._bytes_of, ids)))
        return self._without_space(text) if self._strip_space and text else text

    def finish(self) -> str:
        """What was held back: an unfinished character becomes U+FFFD. Ends the text."""
        text = self._decode(b"", True)
        return self._without_space(text) if self._strip_space and text else text

    def _without_space(self, text: str) -> str:
        self._strip_space = False
        return text.removeprefix(" ")

"""The vocabulary arrays of a GGUF file, checked once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo._native import Texts
from octavo.errors import FormatError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of tokenizer.ggml.token_type."""

_PADDING = re.compile(r"\[PAD\d+\]")


@runtime_checkable
class _File(Protocol):
    """Metadata that has arrays of strings without making Python's strings of them."""

    def texts(self, key: str) -> Texts:
        """The array; raises ValueError where it is none."""


class Vocabulary(Struct, frozen=True):
    """The checked metadata of a vocabulary of V tokens.

    pieces: V texts; types: int32 [V]; scores: float32 [V] (zeros where the file has none).
    """

    metadata: Mapping[str, Any]
    pieces: Texts
    types: NDArray[np.int32]
    scores: NDArray[np.float32]

    def ids_of(self, *types: int) -> list[int]:
        """Ids of the tokens of these types, in order."""
        found: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return found

    def texts(self, *types: int) -> list[str]:
        """Texts of the tokens of these types; none of them is empty."""
        return [piece for token in self.ids_of(*types) if (piece := self.pieces[token])]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `tokenizer.ggml.<key>`."""
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def token_id(self, key: str, default: int | None = None) -> int | None:
        """A token id from `tokenizer.ggml.<key>_token_id`; None where there is no such token."""
        value = self.get(f"{key}_token_id", default)
        return value if isinstance(value, int) and 0 <= value < len(self.pieces) else None

    def strings(self, key: str) -> Texts:
        """The strings of `tokenizer.ggml.<key>`. Raises FormatError if they are not there."""
        return _strings(self.metadata, key)


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Check the vocabulary's arrays. Raises FormatError naming the key."""
    pieces = _strings(metadata, "tokens")
    types = _numbers(metadata, "token_type", len(pieces), np.int32, NORMAL).copy()
    for token in np.flatnonzero(types == USER_DEFINED).tolist():
        if _PADDING.fullmatch(pieces[token]):
            types[token] = UNUSED  # filler rows of a padded embedding; no text means them
    scores = _numbers(metadata, "scores", len(pieces), np.float32, 0.0)
    return Vocabulary(metadata, pieces, types, scores)


def _strings(metadata: Mapping[str, Any], key: str) -> Texts:
    name = f"tokenizer.ggml.{key}"
    if name not in metadata:
        raise FormatError(f"{name}: expected an array of strings, got nothing")
    try:
        if isinstance(metadata, _File):
            return metadata.texts(name)
        values = metadata[name]
        if not isinstance(values, list):
            raise ValueError(f"expected an array of strings, got {type(values).__name__}")
        return Texts(values)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{name}: {error}") from error


def _numbers(
    metadata: Mapping[str, Any], key: str, count: int, dtype: Any, default: float
) -> NDArray[Any]:
    name = f"tokenizer.ggml.{key}"
    if name not in metadata:
        return np.full(count, default, dtype)
    try:
        values = np.ascontiguousarray(metadata[name], dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{name}: expected an array of numbers") from error
    if values.shape != (count,):
        raise FormatError(f"{name}: {values.size} entries for {count} tokens; the two must agree")
    return values

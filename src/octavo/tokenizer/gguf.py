"""Tokenizers from GGUF metadata: the `tokenizer.*` keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError, UnsupportedError
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.special import SpecialTokens, end_ids

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_PADDING = re.compile(r"\[PAD\d+\]")


@dataclass(frozen=True)
class Vocabulary:
    """The checked metadata of a vocabulary of V tokens.

    pieces: V texts; types: int32 [V]; scores: float32 [V] (zeros where the file has none).
    """

    metadata: Mapping[str, Any]
    pieces: list[str]
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
        if isinstance(value, int) and 0 <= value < len(self.pieces):
            return value
        return None


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Check the vocabulary's arrays. Raises FormatError naming the key."""
    pieces = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(pieces, Sequence) or not all(isinstance(piece, str) for piece in pieces):
        raise FormatError("tokenizer.ggml.tokens: expected an array of strings")
    types = _numbers(metadata, "token_type", len(pieces), np.int32, NORMAL).copy()
    for token in np.flatnonzero(types == USER_DEFINED).tolist():
        if _PADDING.fullmatch(pieces[token]):
            types[token] = UNUSED  # filler rows of a padded embedding; no text means them
    scores = _numbers(metadata, "scores", len(pieces), np.float32, 0.0)
    return Vocabulary(metadata, list(pieces), types, scores)


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


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer a GGUF file describes, or None if it has none.

    Raises FormatError for inconsistent metadata, UnsupportedError for a kind unknown here.
    """
    model = metadata.get("tokenizer.ggml.model", "none")
    if model in ("none", "no_vocab"):
        return None
    build = _BUILDERS.get(model)
    if build is None:
        raise UnsupportedError(
            f"tokenizer.ggml.model: {model!r} is not supported; known: {', '.join(_BUILDERS)}"
        )
    return build(read_vocabulary(metadata))


def _byte_level(vocabulary: Vocabulary) -> Tokenizer:
    from octavo.tokenizer.byte_level import byte_level_encoder
    from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS

    name = vocabulary.get("pre", "default")
    rules = PRE_TOKENIZERS.get(name)
    if rules is None:
        raise UnsupportedError(
            f"tokenizer.ggml.pre: {name!r} is not supported; known: {', '.join(PRE_TOKENIZERS)}"
        )
    id_of = {piece: token for token, piece in enumerate(vocabulary.pieces)}
    encoder = byte_level_encoder(
        id_of,
        _merges(vocabulary),
        rules,
        control=vocabulary.texts(CONTROL, UNKNOWN),
        user_defined=vocabulary.texts(USER_DEFINED),
    )
    return Tokenizer(
        pieces=vocabulary.pieces,
        style="byte_level",
        encoder=encoder,
        special=_special(vocabulary, add_bos=rules.add_bos, default_bos=None, default_eos=None),
        templates=_templates(vocabulary.metadata),
        literal_ids=frozenset(vocabulary.ids_of(CONTROL, UNKNOWN, USER_DEFINED)),
    )


def _merges(vocabulary: Vocabulary) -> Iterable[str]:
    merges = vocabulary.get("merges")
    if not isinstance(merges, Sequence):
        raise FormatError("tokenizer.ggml.merges: missing; byte-level BPE needs its merges")
    return merges


def _spm(vocabulary: Vocabulary) -> Tokenizer:
    from octavo._native import SpmEncoder

    space_prefix = bool(vocabulary.get("add_space_prefix", True))
    special = _special(vocabulary, add_bos=True, default_bos=1, default_eos=2)
    unknown = vocabulary.token_id("unknown", 0)
    name = str(vocabulary.metadata.get("general.name", "")).lower()
    encoder = SpmEncoder(
        vocabulary.pieces,
        vocabulary.scores,
        vocabulary.types,
        space_prefix=space_prefix,
        strip_right=name.startswith(("phi-3", "phi3")),
        unknown_id=-1 if unknown is None else unknown,
    )
    return Tokenizer(
        pieces=vocabulary.pieces,
        style="spm",
        encoder=encoder,
        special=special,
        templates=_templates(vocabulary.metadata),
        literal_ids=frozenset(vocabulary.ids_of(CONTROL, UNKNOWN)),
        byte_ids=frozenset(vocabulary.ids_of(BYTE)),
        strip_space=space_prefix,
    )


def _special(
    vocabulary: Vocabulary, *, add_bos: bool, default_bos: int | None, default_eos: int | None
) -> SpecialTokens:
    bos = vocabulary.token_id("bos", default_bos)
    eos = vocabulary.token_id("eos", default_eos)
    declared = [eos, vocabulary.token_id("eot"), vocabulary.token_id("eom")]
    control = vocabulary.ids_of(CONTROL, UNKNOWN)
    id_of = {vocabulary.pieces[token]: token for token in vocabulary.ids_of(CONTROL, USER_DEFINED)}
    ends = end_ids([token for token in declared if token is not None], id_of)
    named = {
        f"{role}_token": vocabulary.pieces[token]
        for role, token in [
            ("bos", bos),
            ("eos", eos),
            ("unk", vocabulary.token_id("unknown")),
            ("pad", vocabulary.token_id("padding")),
        ]
        if token is not None
    }
    return SpecialTokens(
        bos_id=bos,
        eos_ids=ends,
        prefix_ids=_if(bool(vocabulary.get("add_bos_token", add_bos)), bos),
        suffix_ids=_if(bool(vocabulary.get("add_eos_token", False)), eos),
        hidden_ids=frozenset([*control, *ends]),
        named=named,
    )


def _if(wanted: bool, token: int | None) -> tuple[int, ...]:
    return (token,) if wanted and token is not None else ()


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; the unnamed one is "default"."""
    key = "tokenizer.chat_template"
    found = {}
    for name, value in metadata.items():
        if name == key and isinstance(value, str):
            found["default"] = value
        elif name.startswith(key + ".") and isinstance(value, str):
            found[name[len(key) + 1 :]] = value
    return found


_BUILDERS = {"gpt2": _byte_level, "llama": _spm}

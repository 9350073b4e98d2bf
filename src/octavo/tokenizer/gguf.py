"""Tokenizers from GGUF metadata: the `tokenizer.*` keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from octavo.errors import FormatError, OctavoError, UnsupportedError
from octavo.records import replace
from octavo.tokenizer.base import Encoder, Tokenizer
from octavo.tokenizer.charsmap import check_charsmap
from octavo.tokenizer.pieces import PieceStyle
from octavo.tokenizer.special import SpecialTokens, end_ids
from octavo.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    read_vocabulary,
)

TEMPLATE_KEY = "tokenizer.chat_template"
MIDDLE_KEY = "octavo.tokenizer.middle_ids"
"""Ids between the two texts of a pair, which `octavo convert` writes where no key of GGUF's says
them."""


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer a GGUF file describes, or None if it has none.

    Raises FormatError for inconsistent metadata, UnsupportedError for a kind unknown here.
    """
    model = metadata.get("tokenizer.ggml.model", "none")
    if model in ("none", "no_vocab"):
        return None
    build = _BUILDERS.get(model) if isinstance(model, str) else None
    if build is None:
        raise UnsupportedError(
            f"tokenizer.ggml.model: {model!r} is not supported; known: {', '.join(_BUILDERS)}"
        )
    try:
        return build(read_vocabulary(metadata))
    except (OctavoError, MemoryError):
        raise
    except Exception as error:  # what the library and the bindings raise for bad data
        raise FormatError(f"tokenizer.ggml: cannot build a {model!r} tokenizer: {error}") from error


def _byte_level(vocabulary: Vocabulary) -> Tokenizer:
    from octavo.tokenizer.bpe import byte_level_encoder
    from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS

    name = vocabulary.get("pre", "default")
    rules = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if rules is None:
        raise UnsupportedError(
            f"tokenizer.ggml.pre: {name!r} is not supported; known: {', '.join(PRE_TOKENIZERS)}"
        )
    encoder = byte_level_encoder(vocabulary, rules)
    is_roberta = name in ("roberta-bpe", "jina-v1-en", "jina-v2-code")
    special = _special(vocabulary, add_bos=rules.add_bos, add_sep=is_roberta)
    return _tokenizer(vocabulary, encoder, special, "byte_level")


def _spm(vocabulary: Vocabulary) -> Tokenizer:
    from octavo._native import SpmEncoder

    space_prefix = bool(vocabulary.get("add_space_prefix", True))
    unknown = vocabulary.token_id("unknown", 0)
    name = str(vocabulary.metadata.get("general.name", "")).lower()
    encoder = SpmEncoder(
        vocabulary.pieces,
        vocabulary.scores,
        vocabulary.types,
        space_prefix=space_prefix,
        strip_right=name.startswith(("phi-3", "phi3")),  # no key says so
        unknown_id=-1 if unknown is None else unknown,
    )
    special = _special(vocabulary, add_bos=True, bos=1, eos=2)
    return _tokenizer(vocabulary, encoder, special, "spm", strip_space=space_prefix)


def _gemma4(vocabulary: Vocabulary) -> Tokenizer:
    from octavo.tokenizer.bpe import spaced_encoder

    special = _special(vocabulary, add_bos=True)
    return _tokenizer(vocabulary, spaced_encoder(vocabulary), special, "spm")


def _wordpiece(vocabulary: Vocabulary) -> Tokenizer:
    from octavo.tokenizer.library import is_cased, wordpiece_encoder, wordpiece_spelling

    lowercase = bool(vocabulary.get("normalizer.lowercase", not is_cased(vocabulary)))
    encoder = wordpiece_encoder(
        vocabulary,
        unknown_id=vocabulary.token_id("unknown", 100),
        lowercase=lowercase,
        strip_accents=bool(vocabulary.get("normalizer.strip_accents", lowercase)),
    )
    # BERT's begin and end are named CLS and SEP; "seperator" is how the key is spelled.
    begin, end = vocabulary.token_id("cls", 101), vocabulary.token_id("seperator", 102)
    special = _special(vocabulary, add_bos=True, bos=begin, eos=end)
    ends = _if(vocabulary.get("add_sep_token", True), end) or special.suffix_ids
    special = replace(special, suffix_ids=ends, middle_ids=None)
    spelled = wordpiece_spelling(vocabulary) is vocabulary.pieces
    style: PieceStyle = "hf_wordpiece" if spelled else "spm"
    return _tokenizer(vocabulary, encoder, special, style, strip_space=True)


def _unigram(vocabulary: Vocabulary) -> Tokenizer:
    from octavo.tokenizer.library import unigram_encoder

    space_prefix = bool(vocabulary.get("add_space_prefix", False))
    encoder = unigram_encoder(
        vocabulary,
        unknown_id=vocabulary.token_id("unknown", 2),
        charsmap=_charsmap(vocabulary),
        space_prefix=space_prefix,
        collapse_spaces=bool(vocabulary.get("remove_extra_whitespaces", False)),
    )
    # With a begin token it is XLM-RoBERTa's; T5 has none.
    is_roberta = bool(vocabulary.get("add_bos_token", False))
    special = _special(vocabulary, add_bos=False, add_eos=True, eos=1, add_sep=is_roberta)
    return _tokenizer(vocabulary, encoder, special, "spm", strip_space=space_prefix)


def _charsmap(vocabulary: Vocabulary) -> bytes:
    """The normalization, checked; empty where there is none."""
    key = "precompiled_charsmap"
    values = vocabulary.get(key)
    if values is None or len(values) == 0:
        return b""
    charsmap = np.asarray(values).astype(np.uint8).tobytes()
    return check_charsmap(charsmap, f"tokenizer.ggml.{key}")


_BUILDERS: dict[str, Callable[[Vocabulary], Tokenizer]] = {
    "gpt2": _byte_level,
    "llama": _spm,
    "gemma4": _gemma4,
    "bert": _wordpiece,
    "t5": _unigram,
}


def _tokenizer(
    vocabulary: Vocabulary,
    encoder: Encoder,
    special: SpecialTokens,
    style: PieceStyle,
    *,
    strip_space: bool = False,
) -> Tokenizer:
    return Tokenizer(
        pieces=vocabulary.pieces,
        style=style,
        encoder=encoder,
        special=_with_middle(special, vocabulary),
        templates=_templates(vocabulary.metadata),
        literal_ids=frozenset(vocabulary.ids_of(CONTROL, UNKNOWN, USER_DEFINED)),
        byte_ids=frozenset(vocabulary.ids_of(BYTE)),
        strip_space=strip_space,
    )


def _with_middle(special: SpecialTokens, vocabulary: Vocabulary) -> SpecialTokens:
    """With the ids that a key of its own names. Raises FormatError naming it."""
    if MIDDLE_KEY not in vocabulary.metadata:
        return special
    ids, size = np.atleast_1d(np.asarray(vocabulary.metadata[MIDDLE_KEY])), len(vocabulary.pieces)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not ((ids >= 0) & (ids < size)).all():
        raise FormatError(f"{MIDDLE_KEY}: expected ids below {size}")
    return replace(special, middle_ids=tuple(ids.tolist()))


def _special(
    vocabulary: Vocabulary,
    *,
    add_bos: bool,
    add_eos: bool = False,
    add_sep: bool = False,
    bos: int | None = None,
    eos: int | None = None,
) -> SpecialTokens:
    """Roles as the metadata gives them; the arguments say what holds where it is silent."""
    bos = vocabulary.token_id("bos", bos)
    eos = vocabulary.token_id("eos", eos)
    declared = [eos, vocabulary.token_id("eot"), vocabulary.token_id("eom")]
    id_of = {vocabulary.pieces[token]: token for token in vocabulary.ids_of(CONTROL, USER_DEFINED)}
    ends = end_ids([token for token in declared if token is not None], id_of)
    roles = {
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": vocabulary.token_id("unknown"),
        "pad_token": vocabulary.token_id("padding"),
        "cls_token": vocabulary.token_id("cls"),
        "sep_token": vocabulary.token_id("seperator"),
        "mask_token": vocabulary.token_id("mask"),
    }
    suffix = _if(vocabulary.get("add_eos_token", add_eos), eos)
    separator = _if(vocabulary.get("add_sep_token", add_sep), vocabulary.token_id("seperator", eos))
    return SpecialTokens(
        bos_id=bos,
        eos_ids=ends,
        prefix_ids=_if(vocabulary.get("add_bos_token", add_bos), bos),
        suffix_ids=suffix,
        middle_ids=(*suffix, *separator) if separator else None,
        hidden_ids=frozenset([*vocabulary.ids_of(CONTROL, UNKNOWN), *ends]),
        named={
            role: vocabulary.pieces[token] for role, token in roles.items() if token is not None
        },
    )


def _if(wanted: Any, token: int | None) -> tuple[int, ...]:
    return (token,) if wanted and token is not None else ()


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; the unnamed one is "default"."""
    found = {}
    for name in metadata:  # by name first: reading a value may mean decoding a vocabulary
        if name == TEMPLATE_KEY or name.startswith(TEMPLATE_KEY + "."):
            value = metadata[name]
            if isinstance(value, str):
                found[name[len(TEMPLATE_KEY) + 1 :] or "default"] = value
    return found

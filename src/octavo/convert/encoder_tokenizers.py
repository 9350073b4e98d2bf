"""The tokenizers of encoders between the formats: WordPiece and unigram pieces."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.convert.pretokenizer import steps
from octavo.errors import FormatError, UnsupportedError
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.library import is_cased, wordpiece_spelling
from octavo.tokenizer.pieces import SPACE_MARK, spm_byte_value
from octavo.tokenizer.vocabulary import BYTE, NORMAL, UNKNOWN, Vocabulary

Json = Mapping[str, Any]
Types = NDArray[np.int32]
_CONTINUES = "##"
_MASKS = ("[MASK]", "<mask>")


def wordpiece_keys(json: Json, pieces: list[str], types: Types) -> dict[str, Any]:
    """tokenizer.json's WordPiece as GGUF's "bert": words begin with U+2581, and nothing marks what
    goes on in a word. `pieces` are respelled. Raises UnsupportedError for other settings."""
    model, normalizer = json["model"], _only(json, "normalizer", "BertNormalizer")
    prefix = model.get("continuing_subword_prefix", _CONTINUES)
    if prefix != _CONTINUES or _only(json, "pre_tokenizer", "BertPreTokenizer") is None:
        raise UnsupportedError(f"convert: tokenizer.json: WordPiece with {prefix!r:.20} is unknown")
    for id_ in np.flatnonzero(types == NORMAL).tolist():
        piece = pieces[id_]
        goes_on = piece.startswith(_CONTINUES) and len(piece) > len(_CONTINUES)
        pieces[id_] = piece[len(_CONTINUES) :] if goes_on else SPACE_MARK + piece
    lowercase = bool(normalizer.get("lowercase", True))
    accents = normalizer.get("strip_accents")
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.normalizer.lowercase": lowercase,
        "tokenizer.ggml.normalizer.strip_accents": lowercase if accents is None else bool(accents),
        **_named(pieces, unknown=model.get("unk_token", "[UNK]")),
    }


def unigram_keys(json: Json, pieces: list[str], types: Types) -> dict[str, Any]:
    """tokenizer.json's Unigram as GGUF's "t5". Raises FormatError for a broken list of pieces."""
    model = json["model"]
    scores = np.zeros(len(pieces), np.float32)
    vocab = model.get("vocab")
    for id_, entry in enumerate(vocab if isinstance(vocab, list) else []):
        if not isinstance(entry[-1], (int, float)):
            raise FormatError(f"tokenizer.json: entry {entry!r:.80}, expected [text, score]")
        scores[id_] = entry[-1]
    unknown = model.get("unk_id")
    for id_ in np.flatnonzero(types == NORMAL).tolist():
        if model.get("byte_fallback") and spm_byte_value(pieces[id_]) is not None:
            types[id_] = BYTE
    if isinstance(unknown, int) and 0 <= unknown < len(pieces):
        types[unknown] = UNKNOWN
    charsmap, collapses, prefixes = _normalization(json)
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": prefixes,
        "tokenizer.ggml.remove_extra_whitespaces": collapses,
        "tokenizer.ggml.precompiled_charsmap": charsmap if len(charsmap) else None,
        **({"tokenizer.ggml.unknown_token_id": unknown} if isinstance(unknown, int) else {}),
        **_named(pieces),
    }


def unigram_entries(model: Json) -> dict[str, int]:
    """Piece -> id of a Unigram model's list. Raises FormatError unless it is one of pairs."""
    vocab = model.get("vocab")
    pairs = vocab if isinstance(vocab, list) else [None]
    for entry in pairs:
        if not isinstance(entry, list) or [type(part) for part in entry[:1]] != [str]:
            raise FormatError(
                f"tokenizer.json: unigram entry {entry!r:.80}, expected [text, score]"
            )
    return {entry[0]: id_ for id_, entry in enumerate(pairs)}


def begin_and_end(own: Tokenizer) -> dict[str, Any]:
    """The one token before and the one behind every text, where tokenizer.json alone names them."""
    before, after = own.special.prefix_ids, own.special.suffix_ids
    keys: dict[str, Any] = {}
    if before:
        keys |= {f"tokenizer.ggml.{name}_token_id": before[0] for name in ("bos", "cls")}
    if after:
        keys |= {f"tokenizer.ggml.{name}_token_id": after[-1] for name in ("eos", "seperator")}
    return keys


def wordpiece_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """The way back: tokenizer.json's parts."""
    lowercase = bool(vocabulary.get("normalizer.lowercase", not is_cased(vocabulary)))
    unknown = vocabulary.token_id("unknown", 100)
    spelled = wordpiece_spelling(vocabulary)
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": bool(vocabulary.get("normalizer.strip_accents", lowercase)),
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": _CONTINUES, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]" if unknown is None else spelled[unknown],
            "continuing_subword_prefix": _CONTINUES,
            "max_input_chars_per_word": 100,
            "vocab": {piece: id_ for id_, piece in enumerate(spelled)},
        },
    }


def unigram_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """The same of a unigram model."""
    normalizers: list[dict[str, Any]] = []
    charsmap = vocabulary.get("precompiled_charsmap")
    if charsmap is not None and len(charsmap):
        text = b64encode(np.asarray(charsmap).astype(np.uint8).tobytes()).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": text})
    if vocabulary.get("remove_extra_whitespaces", False):
        spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
        normalizers += [{"type": "Strip", "strip_left": True, "strip_right": True}, spaces]
    prefix = bool(vocabulary.get("add_space_prefix", False))
    scheme = "always" if prefix else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme}
    decoders: list[dict[str, Any]] = [{**metaspace, "split": True}]
    if vocabulary.ids_of(BYTE):
        decoders += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    scores = vocabulary.scores.astype(float).tolist()
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {**metaspace, "split": True},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.token_id("unknown", 2),
            "vocab": [[p, s] for p, s in zip(vocabulary.pieces, scores, strict=True)],
            "byte_fallback": bool(vocabulary.ids_of(BYTE)),
        },
    }


def _only(json: Json, part: str, kind: str) -> Mapping[str, Any]:
    """The one step of a part that is of this kind. Raises UnsupportedError for anything else."""
    found = list(steps(json.get(part)))
    if len(found) != 1 or found[0].get("type") != kind:
        got = [step.get("type") for step in found]
        raise UnsupportedError(f"convert: tokenizer.json: {part} {got!r:.80}, expected {kind}")
    return found[0]


def _named(pieces: list[str], unknown: str | None = None) -> dict[str, Any]:
    """Ids of roles that tokenizer.json tells by their texts alone."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    mask = next((ids[text] for text in _MASKS if text in ids), None)
    keys = {"unknown": ids.get(unknown) if unknown else None, "mask": mask}
    return {f"tokenizer.ggml.{k}_token_id": v for k, v in keys.items() if v is not None}


def _normalization(json: Json) -> tuple[NDArray[np.uint8], bool, bool]:
    """The compiled map of characters, whether runs of spaces become one, whether a space is put
    before a text."""
    charsmap, collapses, prefixes = np.zeros(0, np.uint8), False, False
    for step in [*steps(json.get("normalizer")), *steps(json.get("pre_tokenizer"))]:
        kind = step.get("type")
        if kind == "Precompiled":
            text = step.get("precompiled_charsmap") or ""
            charsmap = np.frombuffer(b64decode(text), np.uint8)
        elif kind in ("Strip", "Replace", "WhitespaceSplit"):
            collapses = True
        elif kind == "Metaspace":
            prefixes = step.get("prepend_scheme", "always") != "never"
        else:
            raise UnsupportedError(f"convert: tokenizer.json: {dict(step)!r:.120} has no GGUF form")
    return charsmap, collapses, prefixes

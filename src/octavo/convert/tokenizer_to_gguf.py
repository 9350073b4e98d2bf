"""tokenizer.json and the files beside it -> GGUF's `tokenizer.*` keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.convert.encoder_tokenizers import (
    begin_and_end,
    unigram_entries,
    unigram_keys,
    wordpiece_keys,
)
from octavo.convert.pretokenizer import rule_name, steps
from octavo.convert.probes import same_ids
from octavo.errors import FormatError, UnsupportedError
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.gguf import MIDDLE_KEY, from_gguf
from octavo.tokenizer.huggingface import from_folder, read_object, read_templates
from octavo.tokenizer.pieces import SPACE_MARK, spm_byte_value
from octavo.tokenizer.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

UNREACHED_SCORE = -1e6
"""For pieces that no merge makes."""


def tokenizer_keys(
    folder: Path, generation_config: Mapping[str, Any], vocab_size: int
) -> dict[str, Any]:
    """All keys, checked by encoding sample texts both ways; empty without a tokenizer.json.

    vocab_size: rows of the embedding; the list of tokens is filled up to it. Raises FormatError
    where the tokenizer has more tokens, UnsupportedError for what GGUF cannot say.
    """
    own = from_folder(folder, generation_config)
    if own is None:
        return {}
    json = read_object(folder / "tokenizer.json")
    model = json.get("model")
    kind = model.get("type", "BPE") if isinstance(model, dict) else model
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnsupportedError(
            f"convert: {folder / 'tokenizer.json'}: a model of type {kind!r:.40} is not converted;"
            f" expected one of {', '.join(_KINDS)}"
        )
    pieces, types = _vocabulary(json, vocab_size, folder)
    keys = {
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        **_KINDS[kind](json, pieces, types),
        **_special(own, generation_config),
        **_templates(folder),
    }
    keys = {key: value for key, value in keys.items() if value is not None}
    _keep_middle(own, keys)
    same_ids(own, from_gguf(keys), "GGUF")
    return keys


def _keep_middle(own: Tokenizer, keys: dict[str, Any]) -> None:
    """What stands between the texts of a pair, where the kind of tokenizer does not say it."""
    wanted, twin = own.special.between_ids, from_gguf(keys)
    if own.special.suffix_ids and twin is not None and twin.special.between_ids != wanted:
        keys[MIDDLE_KEY] = np.array(wanted, np.int32)


def merge_pairs(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges, which may be texts of two words or pairs. Raises FormatError."""
    pairs = []
    for merge in model.get("merges", []):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
            raise FormatError(f"tokenizer.json: merge {merge!r:.80} is not a pair of pieces")
        pairs.append((pair[0], pair[1]))
    return pairs


def _bpe(
    json: Mapping[str, Any], pieces: list[str], types: np.ndarray[Any, np.dtype[np.int32]]
) -> dict[str, Any]:
    return _byte_level(json) if _is_byte_level(json) else _spm(json, pieces, types)


_KINDS = {"BPE": _bpe, "WordPiece": wordpiece_keys, "Unigram": unigram_keys}


def _is_byte_level(json: Mapping[str, Any]) -> bool:
    return any(step.get("type") == "ByteLevel" for step in steps(json.get("decoder")))


def _vocabulary(
    json: Mapping[str, Any], vocab_size: int, folder: Path
) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
    vocab = json["model"].get("vocab", {})
    if json["model"].get("type") == "Unigram":
        vocab = unigram_entries(json["model"])
    added = [token for token in json.get("added_tokens", []) if isinstance(token, dict)]
    texts = {id_: text for text, id_ in vocab.items()} | {t["id"]: t["content"] for t in added}
    highest = max(texts, default=-1)
    if highest >= vocab_size:
        raise FormatError(
            f"{folder}: tokenizer.json has a token of id {highest}, but the embedding has"
            f" {vocab_size} rows; tokenizer and weights belong to different models"
        )
    pieces = [texts.get(id_, f"[PAD{id_}]") for id_ in range(vocab_size)]
    types = np.full(vocab_size, UNUSED, np.int32)
    types[list(texts)] = NORMAL
    for token in added:
        types[token["id"]] = CONTROL if token.get("special") else USER_DEFINED
    return pieces, types


def _byte_level(json: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": rule_name(json),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merge_pairs(json["model"])],
    }


def _spm(
    json: Mapping[str, Any], pieces: list[str], types: np.ndarray[Any, np.dtype[np.int32]]
) -> dict[str, Any]:
    """SentencePiece's BPE: the earlier a merge, the higher the score of what it makes."""
    scores = np.full(len(pieces), UNREACHED_SCORE, np.float32)
    rank: dict[str, int] = {}
    for left, right in merge_pairs(json["model"]):
        rank.setdefault(left + right, len(rank))
    for id_, piece in enumerate(pieces):
        if types[id_] == NORMAL:
            if spm_byte_value(piece) is not None:
                types[id_], scores[id_] = BYTE, 0.0
            else:
                scores[id_] = -rank[piece] if piece in rank else UNREACHED_SCORE
        elif types[id_] == USER_DEFINED:
            pieces[id_] = piece.replace(SPACE_MARK, " ")
    unknown = json["model"].get("unk_token")
    if unknown in pieces:
        types[pieces.index(unknown)] = UNKNOWN
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": _prefixes_space(json),
    }


def _prefixes_space(json: Mapping[str, Any]) -> bool:
    prepends = any(
        step.get("type") == "Prepend" and step.get("prepend") == SPACE_MARK
        for step in steps(json.get("normalizer"))
    )
    return prepends or any(
        step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never"
        for step in steps(json.get("pre_tokenizer"))
    )


def _special(own: Tokenizer, generation_config: Mapping[str, Any]) -> dict[str, Any]:
    special, keys = own.special, begin_and_end(own) if own.special.suffix_ids else {}
    named = {"unknown": "unk_token", "padding": "pad_token"}
    for name, role in named.items():
        ids = own.encode(special.named.get(role, ""), add_special_tokens=False)
        if role in special.named and len(ids) == 1:
            keys[f"tokenizer.ggml.{name}_token_id"] = ids[0]
    if special.bos_id is not None:
        keys["tokenizer.ggml.bos_token_id"] = special.bos_id
    for name, id_ in zip(("eos", "eot", "eom"), _ends(own, generation_config), strict=False):
        keys[f"tokenizer.ggml.{name}_token_id"] = id_
    keys["tokenizer.ggml.add_bos_token"] = bool(special.prefix_ids)
    keys["tokenizer.ggml.add_eos_token"] = bool(special.suffix_ids)
    return keys


def _ends(own: Tokenizer, generation_config: Mapping[str, Any]) -> list[int]:
    """The ids that the files declare as ends, the tokenizer's own first."""
    declared = generation_config.get("eos_token_id")
    listed = declared if isinstance(declared, list) else [declared]
    ends = [id_ for id_ in own.special.eos_ids[:1] if isinstance(id_, int)]
    return ends + [id_ for id_ in listed if isinstance(id_, int) and id_ not in ends]


def _templates(folder: Path) -> dict[str, Any]:
    found = read_templates(folder, read_object(folder / "tokenizer_config.json"))
    keys: dict[str, Any] = {
        f"tokenizer.chat_template.{name}" if name != "default" else "tokenizer.chat_template": text
        for name, text in found.items()
    }
    others = [name for name in found if name != "default"]
    return keys | ({"tokenizer.chat_templates": others} if others else {})

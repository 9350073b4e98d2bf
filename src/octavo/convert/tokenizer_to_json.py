"""GGUF's `tokenizer.*` keys -> tokenizer.json, tokenizer_config.json and chat_template.jinja."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.convert.encoder_tokenizers import unigram_parts, wordpiece_parts
from octavo.convert.pretokenizer import byte_level, pre_tokenizer
from octavo.convert.probes import same_ids
from octavo.errors import UnsupportedError
from octavo.tokenizer.base import Tokenizer
from octavo.tokenizer.gguf import TEMPLATE_KEY, from_gguf
from octavo.tokenizer.huggingface import from_folder
from octavo.tokenizer.pieces import SPACE_MARK
from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS
from octavo.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    read_vocabulary,
)

_FILLER = re.compile(r"\[PAD\d+\]")


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The files' texts by name, checked by encoding sample texts both ways; none where the GGUF
    file has no tokenizer. Raises UnsupportedError for kinds that are not converted."""
    own = from_gguf(metadata)
    if own is None:
        return {}
    vocabulary = read_vocabulary(metadata)
    kind = metadata["tokenizer.ggml.model"]
    if kind not in _PARTS:
        raise UnsupportedError(
            f"convert: tokenizer.ggml.model {kind!r:.40} is not converted to tokenizer.json;"
            f" expected one of {', '.join(_PARTS)}"
        )
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        **_PARTS[kind](vocabulary),
    }
    tokenizer["post_processor"] = _post_processor(own, vocabulary, tokenizer["post_processor"])
    ends = {"eos_token_id": list(own.eos_token_ids), "bos_token_id": own.bos_token_id}
    files = {
        "tokenizer.json": _text(tokenizer),
        "tokenizer_config.json": _text(_config(own)),
        "generation_config.json": _text({k: v for k, v in ends.items() if v or v == 0}),
        **_templates(metadata),
    }
    _check(own, files, ends)
    return files


def _check(own: Tokenizer, files: Mapping[str, str], ends: Mapping[str, Any]) -> None:
    """Read them back; the library wants files."""
    with tempfile.TemporaryDirectory(prefix="octavo-convert-") as folder:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (Path(folder) / name).write_text(files[name], encoding="utf-8")
        same_ids(own, from_folder(Path(folder), ends), "tokenizer.json")


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    return [
        {
            "id": id_,
            "content": vocabulary.pieces[id_],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": int(vocabulary.types[id_]) != USER_DEFINED,
        }
        for id_ in vocabulary.ids_of(CONTROL, USER_DEFINED, UNKNOWN)
        if vocabulary.pieces[id_]
    ]


def _vocab(vocabulary: Vocabulary) -> dict[str, int]:
    """Piece -> id, without fillers, and without the added tokens that follow all others: those get
    their ids by their place in added_tokens."""
    fill = [bool(_FILLER.fullmatch(piece)) for piece in vocabulary.pieces]
    unused = vocabulary.types == UNUSED
    used = np.flatnonzero(~(unused & np.array(fill, np.bool_))).tolist()
    added = set(vocabulary.ids_of(CONTROL, USER_DEFINED))
    while used and used[-1] in added and (len(used) == 1 or used[-2] == used[-1] - 1):
        used.pop()
    return {vocabulary.pieces[id_]: id_ for id_ in used}


def _byte_level(vocabulary: Vocabulary) -> dict[str, Any]:
    rule = PRE_TOKENIZERS[str(vocabulary.get("pre", "default"))]
    return {
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": pre_tokenizer(rule),
        "post_processor": byte_level(use_regex=True),
        "decoder": byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.ignore_merges,
            "vocab": _vocab(vocabulary),
            "merges": list(vocabulary.strings("merges")),
        },
    }


def _spm(vocabulary: Vocabulary) -> dict[str, Any]:
    prefix = bool(vocabulary.get("add_space_prefix", True))
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    prepend = {"type": "Prepend", "prepend": SPACE_MARK}
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = vocabulary.token_id("unknown", 0)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]} if prefix else spaces,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if unknown is None else vocabulary.pieces[unknown],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": bool(vocabulary.ids_of(BYTE)),
            "ignore_merges": False,
            "vocab": _vocab(vocabulary),
            "merges": _merges(vocabulary),
        },
    }


def _merges(vocabulary: Vocabulary) -> list[list[str]]:
    """Every pair of pieces that makes a piece, the likeliest piece first: SentencePiece joins by
    the score of the result."""
    skipped = (CONTROL, UNKNOWN, BYTE)
    ids = {p: i for i, p in enumerate(vocabulary.pieces) if vocabulary.types[i] not in skipped}
    found: list[tuple[float, int, int, int, str, str]] = []
    for id_ in vocabulary.ids_of(NORMAL, UNUSED):
        piece, score = vocabulary.pieces[id_], -float(vocabulary.scores[id_])
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in ids and right in ids:
                found.append((score, id_, ids[left], ids[right], left, right))
    found.sort()
    return [[left, right] for *_, left, right in found]


_PARTS = {"gpt2": _byte_level, "llama": _spm, "bert": wordpiece_parts, "t5": unigram_parts}


def _post_processor(own: Tokenizer, vocabulary: Vocabulary, bare: Any) -> Any:
    """The begin and end tokens as a template, where there are any."""
    before, after = own.special.prefix_ids, own.special.suffix_ids
    if not before and not after:
        return bare
    middle = own.special.between_ids
    has_types = vocabulary.get("token_type_count", 1) == 2
    names = {id_: vocabulary.pieces[id_] for id_ in (*before, *middle, *after)}

    def special(ids: Iterable[int], kind: int = 0) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": names[id_], "type_id": kind}} for id_ in ids]

    def text(name: str, kind: int = 0) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": kind}}]

    first, second = [*special(before), *text("A")], int(has_types)
    template = {
        "type": "TemplateProcessing",
        "single": [*first, *special(after)],
        "pair": [*first, *special(middle), *text("B", second), *special(after, second)],
        "special_tokens": {
            name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()
        },
    }
    return template if bare is None else {"type": "Sequence", "processors": [bare, template]}


def _config(own: Tokenizer) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(own.special.prefix_ids),
        "add_eos_token": bool(own.special.suffix_ids),
        "clean_up_tokenization_spaces": False,
        **own.special.named,
    }


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    files = {}
    for key in metadata:
        if key == TEMPLATE_KEY:
            files["chat_template.jinja"] = str(metadata[key])
        elif key.startswith(f"{TEMPLATE_KEY}."):
            name = re.sub(r"[^\w-]", "_", key.removeprefix(f"{TEMPLATE_KEY}."))
            files[f"additional_chat_templates/{name}.jinja"] = str(metadata[key])
    return files


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"

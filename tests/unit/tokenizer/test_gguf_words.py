"""WordPiece and unigram tokenizers from GGUF metadata, against ids of their original
implementations (scripts/tokenizer_fixtures.py)."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers

from octavo.errors import FormatError
from octavo.tokenizer import Tokenizer
from octavo.tokenizer.gguf import from_gguf
from octavo.tokenizer.huggingface import FolderEncoder

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tokenizers"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.json"))
TRIED = "U\u0308 \ufb01 \uff21 \u2122 \u00bd"
"""Texts that the fixtures' normalization replaces."""
UNIGRAM = [name for name in NAMES if name.startswith("unigram")]


def read(name: str) -> tuple[dict[str, Any], list[tuple[str, list[int]]]]:
    """Metadata as a GGUF file gives it, and (text, ids) of every case."""
    fixture = json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))
    keys = {f"tokenizer.ggml.{key}": value for key, value in fixture["metadata"].items()}
    for key in ("token_type", "scores"):
        if (full := f"tokenizer.ggml.{key}") in keys:
            keys[full] = np.array(keys[full], np.int32 if key == "token_type" else np.float32)
    packed = keys.get("tokenizer.ggml.precompiled_charsmap")
    if packed is not None:
        charsmap = zlib.decompress(base64.b64decode(packed))
        keys["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    return keys, [(case["text"], case["ids"]) for case in fixture["cases"]]


def tokenizer(name: str, **changes: Any) -> Tokenizer:
    """One fixture's tokenizer with some keys changed; None takes a key away."""
    keys, _ = read(name)
    keys |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    found = from_gguf({key: value for key, value in keys.items() if value is not None})
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_original(name: str) -> None:
    keys, cases = read(name)
    own = from_gguf(keys)
    assert own is not None
    parse = name.startswith("wordpiece")  # sentencepiece knows no control tokens in a text
    got = {text: own.encode(text, parse_special=parse) for text, _ in cases}
    assert got == dict(cases)
    assert len(cases) >= 20


@pytest.mark.parametrize("name", UNIGRAM)
def test_control_tokens_in_a_text_count_only_where_they_may(name: str) -> None:
    own = tokenizer(name)
    end = own.special.eos_ids[0]
    assert end in own.encode("a</s>b", add_special_tokens=False)
    assert end not in own.encode("a</s>b", add_special_tokens=False, parse_special=False)
    assert own.decode(own.encode("a b")) == "a b"


def test_sentencepieces_user_defined_symbols_are_always_whole() -> None:
    own = tokenizer("unigram-t5")
    ids = own.encode("a<sep>b", add_special_tokens=False, parse_special=False)
    assert own.token_bytes(ids[-2]) == b"<sep>"


def test_unknown_characters_become_bytes_where_there_are_bytes() -> None:
    assert tokenizer("unigram-bytes").decode(tokenizer("unigram-bytes").encode("ж☃")) == "ж☃"
    assert "☃" not in tokenizer("unigram-t5").decode(tokenizer("unigram-t5").encode("☃"))


def test_two_texts_as_one() -> None:
    """What stands between a question and a document."""
    xlm_roberta = tokenizer("unigram-xlm-roberta")
    assert (xlm_roberta.special.suffix_ids, xlm_roberta.special.middle_ids) == ((2,), (2, 2))
    bert = tokenizer("wordpiece-uncased")
    assert (bert.special.suffix_ids, bert.special.middle_ids) == ((3,), None)
    assert tokenizer("unigram-t5").special.middle_ids is None


def test_flags_say_what_stands_round_a_text() -> None:
    bare = [tokenizer("wordpiece-uncased").encode("dog", add_special_tokens=False)][0]
    without = tokenizer("wordpiece-uncased", add_bos_token=False, add_sep_token=False)
    assert without.encode("dog") == bare
    assert tokenizer("wordpiece-uncased", add_sep_token=True, add_eos_token=False).encode(
        "dog"
    ) == [2, *bare, 3]
    assert tokenizer("unigram-t5", add_eos_token=False).encode("dog") == tokenizer(
        "unigram-t5"
    ).encode("dog", add_special_tokens=False)


def test_roles_are_named() -> None:
    named = tokenizer("wordpiece-cased").special.named
    assert (named["cls_token"], named["sep_token"], named["mask_token"]) == (
        "[CLS]",
        "[SEP]",
        "[MASK]",
    )


def test_pieces_spelled_with_hashes_mean_the_same() -> None:
    """As early converters wrote them."""
    keys, cases = read("wordpiece-uncased")
    types = keys["tokenizer.ggml.token_type"]
    spelled = [
        piece if kind == 3 else piece[1:] if piece.startswith("\u2581") else "##" + piece
        for piece, kind in zip(keys["tokenizer.ggml.tokens"], types, strict=True)
    ]
    own = from_gguf(keys | {"tokenizer.ggml.tokens": spelled})
    assert own is not None
    assert {text: own.encode(text) for text, _ in cases} == dict(cases)
    assert own.decode(own.encode("Unreadable Dogs")) == "unreadable dogs"


def test_case_is_told_by_a_key_or_by_the_vocabulary() -> None:
    assert tokenizer("wordpiece-cased").decode(tokenizer("wordpiece-cased").encode("New York")) == (
        "New York"
    )
    lowered = tokenizer("wordpiece-cased", **{"normalizer.lowercase": True})
    assert lowered.encode("NEW") == lowered.encode("new")


def test_an_unknown_token_may_be_typed_as_any_other() -> None:
    keys, _ = read("wordpiece-uncased")
    keys["tokenizer.ggml.token_type"][:] = 1
    keys["tokenizer.ggml.tokens"][1] = "\u2581[UNK]"
    own = from_gguf(keys)
    assert own is not None
    assert own.encode("☃", add_special_tokens=False) == [1]


@pytest.mark.parametrize(
    ("charsmap", "message"),
    [
        (b"\0" * 4, "its trie claims 0 of 4 bytes"),
        (b"\1", "its trie claims 1 of 1 bytes"),
        (b"\xff" * 64, "claims 4294967295 of 64"),
        (b"\4\0\0\0" + b"\0\4\0\0" + b"x\0", "children outside of the 1"),
        (b"\0\4\0\0" + b"\0" * 1024 + b"\xff\0", "not UTF-8"),
        (b"\0\4\0\0" + b"\0\1\0\0" + b"\0" * 1020, "behind the 0 bytes"),
    ],
)
def test_a_broken_normalization_is_refused(charsmap: bytes, message: str) -> None:
    values = np.frombuffer(charsmap, np.uint8)
    with pytest.raises(FormatError, match=message):
        tokenizer("unigram-t5", precompiled_charsmap=values)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255), text=st.text(max_size=12))
def test_a_damaged_normalization_is_refused_or_does_no_harm(at: int, byte: int, text: str) -> None:
    keys, _ = read("unigram-t5")
    charsmap = keys["tokenizer.ggml.precompiled_charsmap"].copy()
    charsmap[at % len(charsmap)] = byte
    try:
        own = from_gguf(keys | {"tokenizer.ggml.precompiled_charsmap": charsmap})
    except FormatError:
        return
    assert own is not None
    own.encode(text + TRIED)


def test_a_broken_normalization_of_a_folder_is_refused_too(tmp_path: Path) -> None:
    keys, _ = read("unigram-t5")
    charsmap = keys["tokenizer.ggml.precompiled_charsmap"].tobytes()
    library = Library(models.Unigram([("a", -1.0)], 0, False))
    library.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap)])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    assert FolderEncoder(path).encode("a", True) == [0]
    state = json.loads(path.read_text())
    broken = charsmap[:4] + b"\0\xfc\xff\x7f" + charsmap[8:]
    state["normalizer"]["normalizers"][0]["precompiled_charsmap"] = base64.b64encode(
        broken
    ).decode()
    path.write_text(json.dumps(state))
    with pytest.raises(FormatError, match=r"tokenizer\.json: precompiled_charsmap: a unit"):
        FolderEncoder(path)


def test_folders_hide_control_tokens_of_unigram_models_too(tmp_path: Path) -> None:
    scored = [("<s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0), ("<", -3.0), ("s", -3.0), (">", -3.0)]
    library = Library(models.Unigram(scored, 1, False))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.add_special_tokens(["<s>"])
    library.save(str(tmp_path / "tokenizer.json"))
    encoder = FolderEncoder(tmp_path / "tokenizer.json")
    assert encoder.encode("<s>", True) == [0]
    assert encoder.encode("<s>", False) == [2, 3, 4, 5]

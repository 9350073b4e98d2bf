"""Tokenizers from one format to the other: the same ids for any text, the same roles."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.convert.pretokenizer import pre_tokenizer, rule_name
from octavo.convert.tokenizer_to_gguf import tokenizer_keys
from octavo.convert.tokenizer_to_json import tokenizer_files
from octavo.errors import FormatError, UnsupportedError
from octavo.tokenizer.gguf import from_gguf
from octavo.tokenizer.huggingface import from_folder
from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.vocabularies import byte_level, spm

TEXTS = st.text(st.sampled_from("ab é😀1\n<s>|im_end"), max_size=40)
VOCABULARIES = {
    "gpt2": byte_level(eos_token_id=267, add_bos_token=False),
    "qwen2": byte_level("qwen2"),
    "llama-bpe": byte_level("llama-bpe", bos_token_id=267),
    "spm": spm(bos_token_id=1, eos_token_id=2, unknown_token_id=0),
    "spm without prefix": spm(add_space_prefix=False, add_eos_token=True),
}
PIECES = Path(__file__).parents[2] / "fixtures" / "tokenizers"


def from_fixture(path: Path) -> dict[str, Any]:
    """The GGUF metadata of an encoder's vocabulary."""
    stored = json.loads(path.read_text())["metadata"]
    charsmap = stored.pop("precompiled_charsmap", None)
    found = {f"tokenizer.ggml.{key}": value for key, value in stored.items()}
    if charsmap:
        unpacked = zlib.decompress(base64.b64decode(charsmap))
        found["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(unpacked, np.uint8)
    return found


ENCODERS = ("wordpiece-uncased", "unigram-xlm-roberta", "unigram-bytes")
VOCABULARIES |= {name: from_fixture(PIECES / f"{name}.json") for name in ENCODERS}
TEMPLATES = {"tokenizer.chat_template": "{{ 1 }}", "tokenizer.chat_template.tool_use": "{{ 2 }}"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module", params=VOCABULARIES)
def there_and_back(request: Any, tmp_path_factory: Any):
    """The GGUF metadata's tokenizer, the folder's, and that of GGUF metadata made of the folder."""
    metadata = {**VOCABULARIES[request.param], **TEMPLATES}
    folder = tmp_path_factory.mktemp("tokenizer")
    files = tokenizer_files(metadata)
    write(folder, files)
    generation = json.loads(files["generation_config.json"])
    keys = tokenizer_keys(folder, generation, len(metadata["tokenizer.ggml.tokens"]) + 5)
    return from_gguf(metadata), from_folder(folder, generation), from_gguf(keys), keys


@given(TEXTS)
def test_same_ids(there_and_back: Any, text: str):
    first, *others, _ = there_and_back
    for other in others:
        assert other.encode(text) == first.encode(text)
        ids = first.encode(text)
        assert other.decode(ids) == first.decode(ids)


def test_same_roles(there_and_back: Any):
    first, folder, back, keys = there_and_back
    for other in (folder, back):
        assert other.special.bos_id == first.special.bos_id
        assert other.eos_token_ids == first.eos_token_ids
        assert other.special.prefix_ids == first.special.prefix_ids
        assert other.special.suffix_ids == first.special.suffix_ids
        assert other.template_source(False) == "{{ 1 }}"
        assert other.template_source(True) == "{{ 2 }}"
    assert keys["tokenizer.chat_templates"] == ["tool_use"]
    assert keys["tokenizer.ggml.tokens"][-5:] == [f"[PAD{i}]" for i in range(*_last(keys))]


def _last(keys: dict[str, Any]) -> tuple[int, int]:
    size = len(keys["tokenizer.ggml.tokens"])
    return size - 5, size


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_rule_is_found_again(name: str):
    rule = PRE_TOKENIZERS[name]
    tokenizer = {
        "pre_tokenizer": pre_tokenizer(rule),
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "model": {"ignore_merges": rule.ignore_merges},
    }
    found = PRE_TOKENIZERS[rule_name(tokenizer)]
    assert found.patterns == rule.patterns
    assert (found.nfc, found.ignore_merges) == (rule.nfc, rule.ignore_merges)


def test_a_rule_that_gguf_has_no_name_for():
    split = {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated"}
    with pytest.raises(UnsupportedError, match=r"tokenizer\.ggml\.pre"):
        rule_name({"pre_tokenizer": split, "model": {}})
    with pytest.raises(UnsupportedError, match="Whitespace"):
        rule_name({"pre_tokenizer": {"type": "Whitespace"}, "model": {}})


def test_more_tokens_than_the_embedding_has_rows(tmp_path: Path):
    write(tmp_path, tokenizer_files(byte_level()))
    with pytest.raises(FormatError, match="different models"):
        tokenizer_keys(tmp_path, {}, 200)


def test_kinds_that_are_not_converted(tmp_path: Path):
    metadata = byte_level() | {"tokenizer.ggml.model": "gemma4"}
    with pytest.raises(UnsupportedError, match="gemma4"):
        tokenizer_files(metadata)
    assert tokenizer_files({}) == {}
    assert tokenizer_keys(tmp_path, {}, 10) == {}

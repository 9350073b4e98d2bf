"""Texts: strings that stay in one allocation, in files and out of lists."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from octavo._native import Texts
from octavo.errors import FormatError
from octavo.tokenizer.vocabulary import read_vocabulary
from octavo.weights.gguf import GgufMetadata, open_file
from tests.support.gguf_file import ARRAY, I32, STR, Array, write_gguf

KEY = "tokenizer.ggml.tokens"
WORDS = ["a", "", "é", "\U0001f600", "\x00", "Ġword", "a" * 1000]


def metadata_with(folder: Path, items: list[Any], kind: int = STR) -> GgufMetadata:
    """The metadata of a file with one array."""
    path = folder / "words.gguf"
    path.write_bytes(write_gguf({KEY: (ARRAY, Array(kind, items))}, []).data)
    return open_file(path).metadata


def is_utf8(data: bytes) -> bool:
    """What Python says."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_texts_are_a_sequence_of_what_they_were_made_of(words: list[str]):
    texts = Texts(words)
    assert isinstance(texts, Sequence)
    assert [list(texts), texts[:], len(texts)] == [words, words, len(words)]


@given(st.slices(len(WORDS)) | st.integers(-len(WORDS), len(WORDS) - 1))
def test_an_index_means_what_it_means_in_a_list(index: int | slice):
    assert Texts(WORDS)[index] == WORDS[index]


@pytest.mark.parametrize("index", [len(WORDS), -len(WORDS) - 1, 2**62, -(2**62)])
def test_an_index_outside_is_an_error(index: int):
    with pytest.raises(IndexError):
        Texts(WORDS)[index]


@pytest.mark.parametrize("index", [2**63, -(2**63) - 1, "0", None, 1.0])
def test_what_is_no_index_is_an_error(index: Any):
    with pytest.raises((TypeError, IndexError, OverflowError)):
        Texts(WORDS)[index]


@pytest.mark.parametrize("words", [["\ud800"], ["a", "b\udfff"]])
def test_surrogates_are_no_text(words: list[str]):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        Texts(words)


@pytest.mark.parametrize("words", [[b"a"], [None], ["a", 1]])
def test_what_is_no_string_is_refused(words: list[Any]):
    with pytest.raises(TypeError):
        Texts(words)


def test_a_files_strings_come_as_they_are(tmp_path: Path):
    metadata = metadata_with(tmp_path, WORDS)
    assert list(metadata.texts(KEY)) == WORDS == metadata[KEY]
    assert list(read_vocabulary(metadata).pieces) == WORDS


# Characters of every length, their halves, and what is shorter, longer or higher than allowed.
_EDGES = ["00", "7f", "80", "bf", "c0", "c1", "c2", "df", "e0", "ed", "ef", "f0", "f4", "f5", "ff"]
_EDGES += ["9f", "a0", "8f", "90", "41"]


@given(st.lists(st.sampled_from(_EDGES), max_size=12).map(lambda b: bytes.fromhex("".join(b))))
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xc0\xaf")  # longer than it must be
@example(b"\xe0\x9f\xbf")
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xf4\x8f\xbf\xbf")  # the last character there is
@example(b"\xf4\x90\x80\x80")
@example(b"plain ascii of some length, then \xe2\x82")
def test_a_files_broken_text_is_found_as_python_finds_it(tmp_path_factory, data: bytes):
    metadata = metadata_with(tmp_path_factory.mktemp("texts"), ["fine", data])
    if is_utf8(data):
        assert list(metadata.texts(KEY)) == ["fine", data.decode()]
        return
    with pytest.raises(ValueError, match="text 1 is not UTF-8"):
        metadata.texts(KEY)
    with pytest.raises(FormatError, match=f"{KEY}: text 1 is not UTF-8"):
        read_vocabulary(metadata)


def test_texts_outlive_the_file(tmp_path: Path):
    texts = metadata_with(tmp_path, WORDS).texts(KEY)
    (tmp_path / "words.gguf").write_bytes(b"")
    assert list(texts) == WORDS


@pytest.mark.parametrize(("kind", "items"), [(I32, [1, 2]), (I32, [])])
def test_other_arrays_are_none_of_strings(tmp_path: Path, kind: int, items: list[int]):
    with pytest.raises(FormatError, match=f"{KEY}: expected an array of strings"):
        read_vocabulary(metadata_with(tmp_path, items, kind))


@pytest.mark.parametrize("value", ["a", 3, {"a": 1}, [1], None])
def test_other_values_are_none_of_strings(value: Any):
    with pytest.raises(FormatError, match=f"{KEY}: "):
        read_vocabulary({KEY: value})

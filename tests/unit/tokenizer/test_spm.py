"""SentencePiece-style BPE against a plain twin, and its rules one by one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizer.gguf import from_gguf
from tests.support.vocabularies import BYTE, CONTROL, SPACE, UNKNOWN, metadata, spm

METADATA = spm(add_bos_token=False, add_space_prefix=False)
TOKENIZER = from_gguf(METADATA)
PIECES = METADATA["tokenizer.ggml.tokens"]
TYPES = METADATA["tokenizer.ggml.token_type"]
SCORES = METADATA["tokenizer.ggml.scores"]
MERGEABLE = {
    piece: token
    for token, piece in enumerate(PIECES)
    if TYPES[token] not in (UNKNOWN, CONTROL, BYTE)
}


def twin(text: str) -> list[int]:
    """Merge the pair that forms the best piece, leftmost first, until there is none."""
    symbols = list(text.replace(" ", SPACE))
    while True:
        pairs = [
            (-SCORES[MERGEABLE[left + right]], at)
            for at, (left, right) in enumerate(pairwise(symbols))
            if left + right in MERGEABLE
        ]
        if not pairs:
            break
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids = []
    for symbol in symbols:
        known = MERGEABLE.get(symbol)
        ids += [known] if known is not None else [3 + byte for byte in symbol.encode()]
    return ids


@given(st.text(st.sampled_from("ab é😀z"), max_size=40))
def test_ids_are_those_of_the_plain_algorithm(text):
    """Any order of merges, ties included."""
    assert TOKENIZER.encode(text) == twin(text)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_ids_decode_to_the_text(text):
    """Bytes stand for what is no piece. (The mark for a space cannot be told from one.)"""
    assert TOKENIZER.decode(TOKENIZER.encode(text, parse_special=False)) == text.replace(SPACE, " ")


def test_a_space_is_put_before_a_text_and_taken_away_again():
    """After a special token too."""
    tokenizer = from_gguf(spm(add_bos_token=False))
    first = PIECES.index(SPACE + "a")
    assert tokenizer.encode("a") == [first]
    assert tokenizer.encode("a</s>a") == [first, 2, first]
    assert tokenizer.decode([first]) == "a"


def test_bos_is_added_where_the_file_says_so():
    """SPM files that say nothing have it."""
    assert from_gguf(spm()).encode("a")[0] == 1
    assert from_gguf(spm()).encode("") == [1]
    assert from_gguf(spm()).encode("a", add_special_tokens=False)[0] != 1
    assert from_gguf(spm(add_eos_token=True)).encode("a")[-1] == 2


def test_the_longest_special_piece_wins():
    """Two newlines are one user-defined piece."""
    assert TOKENIZER.encode("\n\n\n") == [PIECES.index("\n\n"), PIECES.index("\n")]


def test_a_run_of_unknown_characters_is_one_unknown_token():
    """Where there are no byte pieces."""
    tokens = [("<unk>", UNKNOWN, 0.0), ("a", 1, 0.0)]
    tokenizer = from_gguf(metadata("llama", tokens, add_space_prefix=False, unknown_token_id=0))
    assert tokenizer.encode("xyzaq", add_special_tokens=False) == [0, 1, 0]


def test_long_texts_take_time_in_proportion():
    """A quarter of a megabyte without a blank is one word here; quadratic time would take hours."""
    text = "ab" * 125_000
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_odd_scores_do_no_harm(score):
    """A file may hold any float."""
    broken = spm(add_space_prefix=False)
    broken["tokenizer.ggml.scores"][-5:] = score
    assert from_gguf(broken).decode(from_gguf(broken).encode("abab éa")) == "abab éa"

"""Incremental detokenization against decoding everything at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding import Detokenizer
from octavo.tokenizer.gguf import from_gguf
from tests.support.vocabularies import byte_level, spm

TOKENIZERS = {
    "byte_level": from_gguf(byte_level()),
    "spm": from_gguf(spm()),
    "spm without space prefix": from_gguf(spm(add_space_prefix=False)),
}
NAMES = st.sampled_from(sorted(TOKENIZERS))
IDS = st.lists(st.lists(st.integers(0, 290), max_size=4), max_size=12)  # past the vocabulary too


def stream(detokenizer: Detokenizer, chunks: list[list[int]]) -> list[str]:
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.finish()]


@given(NAMES, IDS, st.booleans())
def test_any_chunking_gives_the_text_of_all_ids(name, chunks, skip):
    """Also for ids that make no valid UTF-8, with special tokens shown or not."""
    tokenizer = TOKENIZERS[name]
    ids = [token for chunk in chunks for token in chunk]
    detokenizer = Detokenizer(tokenizer, skip, at_start=True)
    assert "".join(stream(detokenizer, chunks)) == tokenizer.decode(ids, skip_special_tokens=skip)


@given(NAMES, st.text(st.sampled_from("ab é😀你"), max_size=20))
def test_no_character_is_split(name, text):
    """One id at a time, no piece of text holds a replacement character."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special_tokens=False)
    parts = stream(Detokenizer(tokenizer, at_start=True), [[token] for token in ids])
    assert "".join(parts) == text
    assert "\ufffd" not in "".join(parts)


@given(NAMES, st.text(st.sampled_from("ab é"), max_size=9), st.text(st.sampled_from("ab é")))
def test_prompt_and_continuation_add_up(name, prompt, continuation):
    """Decoded apart, a text's two halves give the text: a space between them is kept."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(prompt + continuation, add_special_tokens=False)
    for cut in range(1, len(ids) + 1):
        head = stream(Detokenizer(tokenizer, at_start=True), [ids[:cut]])
        tail = stream(Detokenizer(tokenizer), [ids[cut:]])
        if "\ufffd" not in "".join(head):
            assert "".join(head + tail) == prompt + continuation


def test_an_unfinished_character_is_held_back_and_then_replaced():
    """Three of four bytes are no text yet; at the end they are one U+FFFD."""
    tokenizer = TOKENIZERS["byte_level"]
    ids = [tokenizer.encode("😀")[0], *tokenizer.encode("😀")[1:-1]]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(ids) == ""
    assert detokenizer.finish() == "\ufffd"


def test_special_tokens_are_shown_only_if_asked_for():
    """User-defined tokens are text in either case."""
    tokenizer = TOKENIZERS["byte_level"]
    ids = tokenizer.encode("a<|im_end|><tool>")
    assert Detokenizer(tokenizer).push(ids) == "a<tool>"
    assert Detokenizer(tokenizer, False).push(ids) == "a<|im_end|><tool>"


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_ids_outside_the_vocabulary_are_empty(name):
    """A model's output may have padding rows."""
    tokenizer = TOKENIZERS[name]
    assert Detokenizer(tokenizer).push([tokenizer.vocab_size, 10**9, -1]) == ""
    assert tokenizer.token_bytes(-1) == b""


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_chosen_special_tokens_are_shown(name):
    """Ids that are no special tokens change nothing."""
    tokenizer = TOKENIZERS[name]
    hidden = min(tokenizer.special.hidden_ids)
    mark = tokenizer.token_bytes(hidden).decode()
    ids = [*tokenizer.encode("ab", add_special_tokens=False), hidden]
    for shown, expected in [([hidden, 10**6], "ab" + mark), ([10**6], "ab"), ([], "ab")]:
        text = "".join(stream(Detokenizer(tokenizer, shown=shown, at_start=True), [ids]))
        assert text == expected

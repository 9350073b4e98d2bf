"""Byte-level BPE against the `tokenizers` library's own model."""

import itertools

import numpy as np
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from octavo._native import BpeEncoder, Texts
from octavo.tokenizer.gguf import from_gguf
from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.vocabularies import byte_level

TEXTS = st.text(
    st.one_of(st.sampled_from("ab 1é2\n😀's"), st.characters(codec="utf-8")), max_size=60
)
METADATA = byte_level()
TOKENIZER = from_gguf(METADATA)
IM_END, TOOL = TOKENIZER.vocab_size - 2, TOKENIZER.vocab_size - 1


def library_tokenizer():
    """The same vocabulary in the library."""
    vocab = {piece: token for token, piece in enumerate(METADATA["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in METADATA["tokenizer.ggml.merges"]]
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_tokens(["<tool>"])
    library.add_special_tokens(["<|im_end|>"])
    return library


LIBRARY = library_tokenizer()


@given(TEXTS)
def test_ids_are_the_librarys(text):
    """Cutting and merging agree on any text."""
    assert TOKENIZER.encode(text) == LIBRARY.encode(text).ids


@given(TEXTS)
def test_ids_decode_to_the_text(text):
    """Byte-level BPE loses nothing."""
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_long_words_merge_like_short_ones():
    """A word of thousands of characters, as the library merges it."""
    text = "ab" * 3000 + "aa" * 2001
    assert TOKENIZER.encode(text) == LIBRARY.encode(text).ids


def test_every_pre_tokenizer_rule_compiles_and_keeps_the_text():
    """No rule of the table loses a character."""
    text = "It's  12345 x\r\n\n déjà-vu 你好，world 😀 कि\t__init__(a=1);  "
    for name in PRE_TOKENIZERS:
        tokenizer = from_gguf(byte_level(pre=name))
        assert tokenizer.decode(tokenizer.encode(text)).startswith(text[:30]), name


def test_digits_stand_alone_where_the_rule_says_so():
    """ "12" is a piece, but SmolLM's rule cuts digits apart first."""
    assert len(from_gguf(byte_level(pre="gpt-2")).encode("12")) == 1
    assert len(from_gguf(byte_level(pre="smollm")).encode("12")) == 2


def test_text_of_a_control_token_is_that_token_only_if_asked_for():
    """User-defined tokens are found either way."""
    assert TOKENIZER.encode("a<|im_end|><tool>")[1:] == [IM_END, TOOL]
    plain = TOKENIZER.encode("a<|im_end|><tool>", parse_special=False)
    assert IM_END not in plain
    assert plain[-1] == TOOL


def test_lone_surrogates_count_as_replacement_characters():
    """JSON can carry them; no tokenizer takes them."""
    assert TOKENIZER.encode("a\ud83db") == TOKENIZER.encode("a\ufffdb")
    assert TOKENIZER.encode("\ud83d\ude00") == TOKENIZER.encode("😀")


PIECES = st.text("abc", min_size=1, max_size=4)


@given(
    st.lists(PIECES, max_size=40),
    st.lists(st.tuples(PIECES, PIECES), max_size=40),
    st.text("abc", max_size=30),
)
def test_any_vocabulary_merges_as_the_rule_says(pieces, merges, word):
    """Pieces in any order, some twice, merges of what is no piece: the best merge first, of equal
    ones the leftmost."""
    pieces = ["a", "b", "c", *pieces, *(left + right for left, right in merges[::2])]
    first = {piece: pieces.index(piece) for piece in pieces}
    ranks = {}
    for rank, pair in enumerate(merges):
        if {*pair, "".join(pair)} <= first.keys():
            ranks.setdefault(pair, rank)
    parts = list(word)
    while pairs := [pair for pair in itertools.pairwise(parts) if pair in ranks]:
        best = min(pairs, key=ranks.__getitem__)
        at = next(i for i in range(len(parts)) if tuple(parts[i : i + 2]) == best)
        parts[at : at + 2] = ["".join(best)]
    native = BpeEncoder(
        Texts(pieces),
        Texts([" ".join(pair) for pair in merges]),
        np.ones(len(pieces), np.int32),
        whole_words=False,
        unknown_id=-1,
    )
    assert native.encode_words([word]) == [first[part] for part in parts]

"""What GGUF metadata may say about a tokenizer, and what it may not."""

import numpy as np
import pytest

from octavo.errors import FormatError, UnsupportedError
from octavo.tokenizer.gguf import from_gguf
from tests.support.vocabularies import CONTROL, NORMAL, UNKNOWN, byte_level, metadata, spm


@pytest.mark.parametrize("model", ["none", "no_vocab", None])
def test_no_tokenizer_is_none(model):
    """Then ids go in and out."""
    assert from_gguf({} if model is None else {"tokenizer.ggml.model": model}) is None


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "rwkv"}, UnsupportedError, "tokenizer.ggml.model: 'rwkv'.*known: gpt2, llama"),
        ({"model": 3}, UnsupportedError, "tokenizer.ggml.model: 3"),
        ({"pre": "unheard-of"}, UnsupportedError, "tokenizer.ggml.pre: 'unheard-of'"),
        ({"pre": ["x"]}, UnsupportedError, "tokenizer.ggml.pre"),
        ({"merges": None}, FormatError, "tokenizer.ggml.merges"),
        ({"merges": ["a b", 3]}, FormatError, "tokenizer.ggml"),
        ({"tokens": None}, FormatError, "tokenizer.ggml.tokens"),
        ({"tokens": "abc"}, FormatError, "tokenizer.ggml.tokens"),
        ({"tokens": ["a", 3]}, FormatError, "tokenizer.ggml"),
        ({"tokens": ["a\ud800"] * 269}, FormatError, "tokenizer.ggml"),
        ({"token_type": [1, 2]}, FormatError, "token_type: 2 entries for 269 tokens"),
        ({"token_type": ["x"] * 269}, FormatError, "token_type: expected an array of numbers"),
        ({"scores": np.zeros((269, 2))}, FormatError, "scores: 538 entries"),
    ],
)
def test_bad_metadata_is_named(changes, error, message):
    """The message says which key."""
    changed = byte_level() | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(error, match=message):
        from_gguf(changed)


def test_ids_out_of_range_are_no_tokens():
    """A bos or eos id past the vocabulary is as good as none."""
    tokenizer = from_gguf(byte_level(bos_token_id=10**6, eos_token_id=-1, add_bos_token=True))
    assert tokenizer.bos_token_id is None
    assert tokenizer.encode("a") == tokenizer.encode("a", add_special_tokens=False)
    assert tokenizer.eos_token_ids == (tokenizer.encode("<|im_end|>")[0],)


def test_all_that_ends_an_answer_is_found():
    """The declared tokens first, then those known by their text; never shown."""
    tokens = [(text, CONTROL, 0.0) for text in ("<bos>", "<eos>", "<end_of_turn>", "<|eot_id|>")]
    tokens += [("a", NORMAL, 0.0)]
    tokenizer = from_gguf(metadata("llama", tokens, eos_token_id=1, eot_token_id=4))
    assert tokenizer.eos_token_ids == (1, 4, 3, 2)
    assert tokenizer.is_special(4)


def test_a_channels_end_is_not_an_answers_end():
    """gpt-oss closes channels with <|end|> and answers with <|return|>."""
    texts = ("<|end|>", "<|return|>", "<|call|>")
    tokens = [("<unk>", UNKNOWN, 0.0), *((text, CONTROL, 0.0) for text in texts)]
    tokenizer = from_gguf(metadata("llama", tokens, bos_token_id=99, eos_token_id=2))
    assert set(tokenizer.eos_token_ids) == {2, 3}


def test_filler_tokens_are_not_found_in_text():
    """A padded vocabulary's "[PAD7]" rows are typed as user-defined."""
    vocabulary = spm(add_bos_token=False, add_space_prefix=False)
    vocabulary["tokenizer.ggml.tokens"][0] = "[PAD0]"
    vocabulary["tokenizer.ggml.token_type"][0] = 4
    assert 0 not in from_gguf(vocabulary).encode("[PAD0]")


def test_templates_and_their_names():
    """The unnamed one is the default; others are chosen by name or for tools."""
    tokenizer = from_gguf(
        byte_level(eos_token_id=267)
        | {"tokenizer.chat_template": "{{ eos_token }}", "tokenizer.chat_template.tool_use": "t"}
    )
    assert tokenizer.chat_template == "{{ eos_token }}"
    assert tokenizer.render_chat([]) == "<|im_end|>"
    assert tokenizer.render_chat([], tools=[{"type": "function"}]) == "t"
    assert tokenizer.render_chat([], chat_template="tool_use") == "t"


def test_wordpiece_and_unigram():
    """BERT's and T5's kinds: words in, words out."""
    tokens = [("[CLS]", CONTROL, 0.0), ("[SEP]", CONTROL, 0.0), ("[UNK]", CONTROL, 0.0)]
    tokens += [("▁hello", NORMAL, 0.0), ("▁wor", NORMAL, 0.0), ("ld", NORMAL, 0.0)]
    ids = {"cls_token_id": 0, "seperator_token_id": 1, "unknown_token_id": 2}
    bert = from_gguf(metadata("bert", tokens, **ids))
    assert bert.encode("Hello world x") == [0, 3, 4, 5, 2, 1]
    assert bert.decode([0, 3, 4, 5, 1]) == "hello world"

    tokens = [("<unk>", UNKNOWN, 0.0), ("</s>", CONTROL, 0.0), ("▁", NORMAL, -2.0)]
    tokens += [("▁ab", NORMAL, -1.0), ("a", NORMAL, -3.0), ("b", NORMAL, -3.0)]
    keys = {"unknown_token_id": 0, "add_space_prefix": True, "remove_extra_whitespaces": True}
    t5 = from_gguf(metadata("t5", tokens, eos_token_id=1, **keys))
    assert t5.encode("ab  ab") == [3, 3, 1]
    assert t5.decode([3, 3, 1]) == "ab ab"

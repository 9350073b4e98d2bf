"""Text out of the engine: whole characters, stop strings, special tokens."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine import CompletionOutput, Delta
from tests.support.engines import byte_tokenizer, drain, null_engine, request, spelling


def answer(text: str | bytes, **params: Any) -> tuple[str, list[Delta]]:
    engine = null_engine(spelling(text, prompt_len=1), byte_tokenizer(), num_kv_blocks=64)
    engine.add_request(request("a", [65], **({"max_tokens": 60} | params)))
    deltas = drain(engine)
    assert [d.finish_reason for d in deltas[:-1]] == [None] * (len(deltas) - 1)
    return "".join(d.text for d in deltas), deltas


def test_text_is_streamed_and_the_end_token_not_shown() -> None:
    text, deltas = answer("hello")
    assert text == "hello"
    assert [d.text for d in deltas] == ["h", "e", "l", "l", "o", ""]
    assert deltas[-1].finish_reason == "stop"


def test_characters_are_never_split() -> None:
    text, deltas = answer("aé漢🙂b")
    assert text == "aé漢🙂b"
    assert {d.text for d in deltas} == {"a", "é", "漢", "🙂", "b", ""}


def test_a_character_cut_off_by_length_is_replaced_at_the_end() -> None:
    text, deltas = answer("a漢", max_tokens=3)
    assert text == "a\ufffd"
    assert deltas[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("stop", "include", "expected", "reason"),
    [
        (("lo w",), False, "hel", "lo w"),
        (("lo w",), True, "hello w", "lo w"),
        (("o", "ll"), False, "he", "ll"),
        (("hello world!",), False, "hello world", None),
    ],
)
def test_stop_strings(stop: tuple[str, ...], include: bool, expected: str, reason: str) -> None:
    text, deltas = answer("hello world", stop=stop, include_stop_str_in_output=include)
    assert text == expected
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].stop_reason == reason


def test_no_part_of_a_stop_string_is_shown_before_it_is_ruled_out() -> None:
    text, deltas = answer("abcabd", stop=("abd",))
    assert text == "abc"
    shown = ""
    for delta in deltas:
        shown += delta.text
        assert "abc".startswith(shown)


def test_a_held_back_text_comes_out_at_the_length_limit() -> None:
    text, deltas = answer("abab", stop=("abx",), max_tokens=4)
    assert text == "abab"
    assert deltas[-1].finish_reason == "length"


def test_stop_strings_count_only_after_min_tokens() -> None:
    text, deltas = answer("x.y.z", stop=(".",), min_tokens=2)
    assert text == "x.y"
    assert deltas[-1].stop_reason == "."


def test_a_stop_token_is_shown_only_if_asked_for() -> None:
    stop = (ord("!"),)
    assert answer("hi!", stop_token_ids=stop)[0] == "hi"
    assert answer("hi!", stop_token_ids=stop, include_stop_str_in_output=True)[0] == "hi!"


def test_special_tokens_and_detokenize() -> None:
    assert answer("", skip_special_tokens=False, include_stop_str_in_output=True)[0] == "</s>"
    text, deltas = answer("abc", detokenize=False)
    assert text == ""
    assert [t for d in deltas for t in d.token_ids][:3] == [97, 98, 99]


def test_samples_have_their_own_text() -> None:
    engine = null_engine(lambda token, position: 97, byte_tokenizer())
    engine.add_request(request("a", [65], n=3, temperature=40.0, seed=1, max_tokens=30))
    outputs = [CompletionOutput(i) for i in range(3)]
    for delta in drain(engine):
        outputs[delta.index].text += delta.text
        outputs[delta.index].token_ids += delta.token_ids
    tokenizer = byte_tokenizer()
    for output in outputs:
        ends = [t for t in output.token_ids if t != 257]
        assert output.text == tokenizer.decode(ends)
    assert len({output.text for output in outputs}) == 3

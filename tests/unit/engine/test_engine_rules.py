"""What may not be drawn, and answers that go in circles, on the null backend."""

from __future__ import annotations

import pytest

from octavo.decoding import Grammar, RepetitionDetection
from octavo.errors import InvalidParameterError
from tests.support.engines import BOS, EOS, byte_tokenizer, drain, null_engine, request, run

PROMPT = [BOS, *b"ask"]


def repeating(pattern: bytes):
    """A script that answers with the pattern for ever."""
    return lambda token, position: pattern[(position + 1 - len(PROMPT)) % len(pattern)]


def test_nothing_but_the_allowed_tokens_is_drawn():
    engine = null_engine(tokenizer=byte_tokenizer())
    held = request("held", PROMPT, temperature=2.0, allowed_token_ids=[65, 70, 255], max_tokens=40)
    free = request("free", PROMPT, max_tokens=4)
    first, second = run(engine, held, free)
    assert set(first.outputs[0].token_ids) == {65, 70, 255}
    assert second.outputs[0].text == "lmno"


def test_allowed_tokens_and_a_grammar_hold_both():
    engine = null_engine(tokenizer=byte_tokenizer())
    grammar = Grammar.from_regex("[a-d]{6}")
    both = request("r", PROMPT, temperature=1.0, grammar=grammar, allowed_token_ids=[*b"bcxy"])
    assert set(run(engine, both)[0].outputs[0].text) <= set("bc")


def test_a_grammar_that_needs_a_closed_token_fails_its_request():
    engine = null_engine(tokenizer=byte_tokenizer())
    engine.add_request(
        request("r", PROMPT, grammar=Grammar.from_choices(["a"]), allowed_token_ids=[98])
    )
    (end,) = drain(engine)
    assert (end.finish_reason, end.error_param) == ("error", "grammar")


@pytest.mark.parametrize(
    ("words", "text"), [(["cd"], "abc"), (["abcd", "zz"], "abc"), (["e"], "abcd")]
)
def test_a_bad_word_is_not_completed(words, text):
    engine = null_engine(repeating(b"abcdefgh"), byte_tokenizer())
    answer = run(engine, request("r", PROMPT, bad_words=words, max_tokens=8))[0].outputs[0].text
    assert answer.startswith(text)
    assert not any(word in answer for word in words)


def test_a_bad_word_after_a_space_is_one_too():
    engine = null_engine(repeating(b"x bad "), byte_tokenizer())
    answer = run(engine, request("r", PROMPT, bad_words=["bad"], max_tokens=12))[0].outputs[0].text
    assert "bad" not in answer


def test_bad_words_need_a_tokenizer():
    with pytest.raises(InvalidParameterError, match="bad_words"):
        null_engine().add_request(request("r", PROMPT, bad_words=["x"]))


@pytest.mark.parametrize(
    ("pattern", "detection", "length"),
    [
        (b"a", RepetitionDetection(1, 1, 5), 5),
        (b"abc", RepetitionDetection(4, 1, 3), 9),
        (b"abc", RepetitionDetection(2, 1, 2), 30),
        (b"aab", RepetitionDetection(8, 2, 2), 6),
        (b"aab", RepetitionDetection(8, 1, 2), 2),
    ],
)
def test_an_answer_in_circles_ends(pattern, detection, length):
    engine = null_engine(repeating(pattern), byte_tokenizer())
    asked = request("r", PROMPT, max_tokens=30, repetition_detection=detection)
    sample = run(engine, asked)[0].outputs[0]
    assert len(sample.token_ids) == length
    ended = ("length", None) if length == 30 else ("stop", "repetition_detected")
    assert (sample.finish_reason, sample.stop_reason) == ended


@pytest.mark.parametrize("fields", [(0,), (2, 3), (2000,), (2, 0), (2, 1, 1), (2, 1, True), ("2",)])
def test_detection_refuses_what_makes_no_sense(fields):
    with pytest.raises(InvalidParameterError, match="repetition_detection"):
        RepetitionDetection(*fields)


def test_the_prompt_is_no_part_of_a_circle():
    engine = null_engine(lambda token, position: EOS, byte_tokenizer())
    asked = request("r", [BOS, *b"aaaa"], repetition_detection=RepetitionDetection(1, 1, 2))
    assert run(engine, asked)[0].outputs[0].stop_reason is None

"""Answers held to a grammar, on the null backend: any allowed token is drawn."""

from __future__ import annotations

import json
import threading

import pytest

from octavo.decoding import Grammar
from octavo.decoding.grammar_compiler import CompiledGrammar, GrammarCompiler
from octavo.engine import LLM, Collector, Engine, Request
from octavo.engine.types import Resumption
from octavo.errors import InvalidParameterError
from tests.support.engines import BOS, EOS, byte_tokenizer, drain, null_engine, request, run

PROMPT = [BOS, *b"ask"]
SCHEMA = {
    "type": "object",
    "properties": {
        "on": {"type": "boolean"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["on", "n"],
    "additionalProperties": False,
}


def new_engine(**options: object) -> Engine:
    return null_engine(tokenizer=byte_tokenizer(), **options)


def asked(name: str, grammar: Grammar | None, **params: object) -> Request:
    defaults = {"max_tokens": 60, "temperature": 1.0, "seed": len(name)}
    return request(name, PROMPT, grammar=grammar, **(defaults | params))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_the_answer_matches_its_schema_and_stops_when_complete(temperature):
    requests = [
        asked(f"r{i}", Grammar.from_schema(SCHEMA), temperature=temperature, seed=i)
        for i in range(6)
    ]
    for output in run(new_engine(), *requests):
        sample = output.outputs[0]
        assert sample.finish_reason == "stop"
        assert set(json.loads(sample.text)) == {"on", "n"}


def test_end_of_sequence_ends_an_answer_that_could_go_on():
    engine = null_engine(lambda token, position: EOS, byte_tokenizer())
    sample = run(engine, asked("r", Grammar.from_regex("[ab]{2,9}"), temperature=0.0))[0].outputs[0]
    assert (len(sample.text), sample.finish_reason, sample.token_ids[-1]) == (2, "stop", EOS)


def test_ignore_eos_does_not_make_a_complete_answer_go_on():
    output = run(new_engine(), asked("r", Grammar.from_choices(["yes", "no"]), ignore_eos=True))[0]
    assert output.outputs[0].text in ("yes", "no")
    assert output.outputs[0].finish_reason == "stop"


def test_an_answer_cut_by_its_length_says_so():
    output = run(new_engine(), asked("r", Grammar.from_schema(SCHEMA), max_tokens=5))[0]
    assert output.outputs[0].finish_reason == "length"
    assert len(output.outputs[0].token_ids) == 5


def test_each_sample_has_a_place_of_its_own():
    output = run(new_engine(), asked("r", Grammar.from_choices(["yes", "no", "maybe"]), n=8))[0]
    texts = [sample.text for sample in output.outputs]
    assert set(texts) <= {"yes", "no", "maybe"}
    assert len(set(texts)) > 1


def test_preemption_and_the_prefix_cache_change_nothing():
    requests = [
        asked(f"r{i}", Grammar.from_schema(SCHEMA) if i % 2 else None, max_tokens=24, seed=i)
        for i in range(6)
    ]
    alone = [run(new_engine(), one)[0].outputs[0].token_ids for one in requests]
    crowded = new_engine(num_kv_blocks=14, max_model_len=50)
    together = run(crowded, *requests)
    assert crowded.stats().num_preemptions > 0
    assert [output.outputs[0].token_ids for output in together] == alone


def test_rows_without_a_grammar_are_what_they_would_be_without_neighbours():
    free = asked("free", None, seed=7)
    alone = run(new_engine(), free)[0].outputs[0].token_ids
    both = run(new_engine(), asked("held", Grammar.json_object()), free)
    assert both[1].outputs[0].token_ids == alone


def test_a_mask_that_leaves_nothing_fails_its_own_request_only():
    engine = new_engine()
    engine.add_request(
        asked("stuck", Grammar.from_choices(["yes"]), stop_token_ids=[ord("y")], min_tokens=5)
    )
    engine.add_request(asked("fine", None, max_tokens=4))
    ends = {d.request_id: d for d in drain(engine) if d.finish_reason is not None}
    assert ends["fine"].finish_reason == "length"
    assert ends["stuck"].finish_reason == "error"
    assert (ends["stuck"].error_kind, ends["stuck"].error_param) == (
        "InvalidParameterError",
        "grammar",
    )
    assert "no token is allowed" in str(ends["stuck"].error)


def test_a_complete_answer_ends_before_min_tokens():
    output = run(new_engine(), asked("r", Grammar.from_choices(["yes"]), min_tokens=5))[0]
    assert output.outputs[0].text == "yes"


def test_a_bad_grammar_ends_its_request_with_an_error_that_names_it():
    engine = new_engine()
    bad = asked("bad", Grammar.from_schema({"contains": {}}, param="response_format"))
    engine.add_request(bad)
    engine.add_request(asked("fine", None, max_tokens=4))
    deltas = drain(engine)
    end = next(d for d in deltas if d.request_id == "bad")
    assert (end.error_kind, end.error_param) == ("InvalidParameterError", "response_format")
    with pytest.raises(InvalidParameterError, match='unsupported keyword "contains" at #/contains'):
        Collector(bad).add(end)
    assert any(d.request_id == "fine" and d.finish_reason == "length" for d in deltas)


def test_others_go_on_while_a_grammar_is_compiled(monkeypatch):
    may_compile = threading.Event()
    compile_now = GrammarCompiler.compile

    def slow_compile(self: GrammarCompiler, grammar: Grammar) -> CompiledGrammar:
        assert may_compile.wait(20)
        return compile_now(self, grammar)

    monkeypatch.setattr(GrammarCompiler, "compile", slow_compile)
    engine = new_engine()
    engine.add_request(asked("held", Grammar.from_choices(["yes"])))
    engine.add_request(asked("fine", None, max_tokens=4))
    assert engine.num_waiting == 2
    shown = [delta for _ in range(6) for delta in engine.step()]
    assert {d.request_id for d in shown} == {"fine"}
    assert shown[-1].finish_reason == "length"
    may_compile.set()
    assert "".join(d.text for d in drain(engine)) == "yes"


def test_aborting_a_request_whose_grammar_is_not_ready():
    engine = new_engine()
    engine.add_request(asked("gone", Grammar.from_choices(["a", "b", "c"])))
    engine.abort("gone")
    assert [d.finish_reason for d in drain(engine)] == ["abort"]
    assert not engine.has_work()


def test_llm_refuses_a_bad_grammar_before_anything_runs():
    with LLM.from_engine(new_engine()) as llm, pytest.raises(InvalidParameterError, match="regex"):
        llm.generate("x", asked("bad", Grammar.from_regex("(")).params)


def test_a_model_without_tokenizer_takes_no_grammar():
    with pytest.raises(InvalidParameterError, match="no tokenizer"):
        null_engine().add_request(asked("r", Grammar.json_object()))


@pytest.mark.parametrize("shown", [0, 1, 7])
def test_another_engine_goes_on_where_the_first_one_died(shown):
    one = asked("r", Grammar.from_schema(SCHEMA), n=2)
    whole = [sample.token_ids for sample in run(new_engine(), one)[0].outputs]
    again = asked("r", Grammar.from_schema(SCHEMA), n=2)
    again.resumption = Resumption([ids[:shown] for ids in whole], [False, False])
    engine = new_engine()
    engine.add_request(again)
    rest: list[list[int]] = [[], []]
    for delta in drain(engine):
        rest[delta.index] += delta.token_ids
    assert [ids[:shown] + more for ids, more in zip(whole, rest, strict=True)] == whole


def test_a_finished_sample_of_a_resumed_request_stays_finished():
    one = asked("r", Grammar.from_choices(["yes", "no"]), n=2)
    whole = [sample.token_ids for sample in run(new_engine(), one)[0].outputs]
    again = asked("r", Grammar.from_choices(["yes", "no"]), n=2)
    again.resumption = Resumption([whole[0], whole[1][:1]], [True, False])
    engine = new_engine()
    engine.add_request(again)
    deltas = drain(engine)
    assert {delta.index for delta in deltas} == {1}
    assert whole[1][:1] + [t for delta in deltas for t in delta.token_ids] == whole[1]

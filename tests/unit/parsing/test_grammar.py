"""Grammars that make a model write calls: they accept what the parser reads, and nothing else."""

from __future__ import annotations

import json

import llguidance
import pytest

from octavo.parsing import Tool, answer_format, forced_calls, free_calls, shaped_answer
from tests.unit.parsing.outputs import TOOLS, WEATHER, Case
from tests.unit.parsing.test_formats import meaning

BYTES = llguidance.LLTokenizer("byte")
CLOSED = {**WEATHER.parameters, "additionalProperties": False}
STRICT = Tool(WEATHER.name, parameters=CLOSED, strict=True)
CITY = '{"city": "Paris", "days": 2}'
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "get_weather", "arguments": {CITY}}}\n</tool_call>',
    "llama3": f'{{"name": "get_weather", "parameters": {CITY}}}',
    "mistral": f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {CITY}}}]',
    "mistral_args": f"[TOOL_CALLS]get_weather[ARGS]{CITY}",
    "mistral_id": f"[TOOL_CALLS]get_weather[CALL_ID]abcdefgh1[ARGS]{CITY}",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather"
    f"\n```json\n{CITY}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    f"{CITY}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": "<｜DSML｜function_calls>\n"
    '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    f"<|tool_call_argument_begin|>{CITY}<|tool_call_end|><|tool_calls_section_end|>",
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
    "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
    "glm4": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris'
    '</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
    "granite": f'<|tool_call|>[{{"name": "get_weather", "arguments": {CITY}}}]',
    "cohere": '<|START_ACTION|>[{"tool_name": "get_weather", "parameters": '
    f"{CITY}}}]<|END_ACTION|>",
    "nemotron": f'<TOOLCALL>[{{"name": "get_weather", "arguments": {CITY}}}]</TOOLCALL>',
    "apriel": f'<tool_calls>[{{"name": "get_weather", "arguments": {CITY}}}]</tool_calls>',
    "firefunction": f'functools[{{"name": "get_weather", "arguments": {CITY}}}]',
    "functionary": f"<function=get_weather>{CITY}</function>",
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + CITY,
}


def test_written_is_what_the_grammar_accepts() -> None:
    for name, written in WRITTEN.items():
        if (format := answer_format(name, "none")).tools is not None:
            found = format.tools.written("get_weather", CITY)
            assert found.replace("000000000", "abcdefgh1") == written


def accepts(grammar: str, text: str) -> bool:
    """Whether the text is a whole answer."""
    matcher = llguidance.LLMatcher(
        BYTES, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0
    )
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_forced_call_is_read_back(name: str) -> None:
    format, written = answer_format(name, "none"), WRITTEN[name]
    grammar = forced_calls(format, TOOLS, "", {}, many=False)
    assert accepts(grammar, written)
    case = Case(name, written)
    text, reasoning, [[called, arguments]] = meaning(case, written)
    assert (text, reasoning, called) == ("", "", "get_weather")
    assert json.loads(arguments) == json.loads(CITY)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_forced_call_is_nothing_else(name: str) -> None:
    grammar = forced_calls(answer_format(name, "none"), TOOLS, "", {}, many=False)
    written = WRITTEN[name]
    for wrong in (
        "Paris is nice.",
        "",
        written[:-1],
        written.replace("get_weather", "get_wether"),
        "Well, " + written,
        written + " Done.",
    ):
        if name == "harmony" and wrong == written[:-1]:
            continue
        assert not accepts(grammar, wrong), wrong
    assert not accepts(grammar, written.replace("2", '"two"')) or name == "harmony"


@pytest.mark.parametrize("name", [n for n in WRITTEN if n not in ("harmony",)])
def test_several_calls_only_where_they_are_allowed(name: str) -> None:
    format = answer_format(name, "none")
    many, one = (forced_calls(format, TOOLS, "", {}, many=flag) for flag in (True, False))
    for written in (f"{WRITTEN[name]}{glue}{WRITTEN[name]}" for glue in ("", "\n", "; ")):
        assert not accepts(one, written)
        if accepts(many, written):
            assert len(meaning(Case(name, written), written)[2]) == 2


def test_several_calls_in_a_row() -> None:
    grammar = forced_calls(answer_format("hermes", "none"), TOOLS, "", {}, many=True)
    now = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert accepts(grammar, f"{now}\n{WRITTEN['hermes']}")
    for name in ("qwen3_coder", "mistral_args"):
        grammar = forced_calls(answer_format(name, "none"), TOOLS, "", {}, many=True)
        glue = "\n" if name == "qwen3_coder" else ""
        assert accepts(grammar, WRITTEN[name] + glue + WRITTEN[name])


def test_only_the_chosen_function() -> None:
    grammar = forced_calls(answer_format("hermes", "none"), (WEATHER,), "", {}, many=True)
    assert accepts(grammar, WRITTEN["hermes"])
    assert not accepts(grammar, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')


def test_thinking_comes_first() -> None:
    format, call = answer_format("hermes", "think"), WRITTEN["hermes"]
    may = forced_calls(format, TOOLS, "<|im_start|>assistant\n", {}, many=False)
    assert accepts(may, f"<think>\nHm {{ <tool_call>\n</think>\n\n{call}")
    assert accepts(may, call)
    assert not accepts(may, "<think>\nHm\n</think>\n\n")
    must = forced_calls(format, TOOLS, "assistant\n<think>\n", {}, many=False)
    assert accepts(must, f"Hm\n</think>\n\n{call}")
    assert not accepts(must, call)
    off = forced_calls(format, TOOLS, "<think>\n\n</think>\n\n", {}, many=False)
    assert accepts(off, call)
    assert not accepts(off, f"<think>\n</think>{call}")


def test_harmony_thinks_first() -> None:
    format = answer_format("harmony", "harmony")
    grammar = forced_calls(format, TOOLS, "<|start|>assistant", {}, many=False)
    assert accepts(
        grammar, "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant" + WRITTEN["harmony"]
    )
    body = shaped_answer(format, 'start: "yes" | "no"\n', (), "<|start|>assistant", {}, True)
    assert body is not None
    assert accepts(body, "<|channel|>final<|message|>yes")
    assert not accepts(body, "yes")


def test_a_format_behind_the_thinking() -> None:
    format = answer_format("none", "think")
    body = 'start: "{" start "}" | num\nnum: /[0-9]/ // start\n'
    grammar = shaped_answer(format, body, (), "<think>\n", {}, True)
    assert grammar is not None
    assert accepts(grammar, "5?</think>\n\n{{5}}")
    assert not accepts(grammar, "{5}")
    assert shaped_answer(format, body, (), "<think></think>", {}, True) is None
    assert shaped_answer(answer_format("none", "none"), body, (), "", {}, True) is None


@pytest.mark.parametrize("name", WRITTEN)
def test_a_format_leaves_room_for_calls(name: str) -> None:
    format = answer_format(name, "none")
    prompt = "<|start|>assistant" if name == "harmony" else ""
    grammar = shaped_answer(format, 'start: "[" /[0-9]/ "]"\n', (STRICT,), prompt, {}, many=False)
    assert grammar is not None
    answer = "<|channel|>final<|message|>[5]" if name == "harmony" else "[5]"
    assert accepts(grammar, answer)
    assert accepts(grammar, WRITTEN[name])
    assert not accepts(grammar, answer + WRITTEN[name])
    assert not accepts(grammar, WRITTEN[name].replace("2", "[]"))


@pytest.mark.parametrize("name", [n for n in WRITTEN if n not in ("harmony", "llama3")])
def test_strict_tools_are_held_to_their_schemas_in_free_text(name: str) -> None:
    format, call = answer_format(name, "none"), WRITTEN[name]
    grammar = free_calls(format, (STRICT,), "", {}, many=True)
    assert grammar is not None
    assert accepts(grammar, "Just text.")
    assert accepts(grammar, "")
    assert accepts(grammar, call)
    assert accepts(grammar, f"Well. {call}")
    assert not accepts(grammar, f"Well. {call.replace('2', '[]')}")
    assert not accepts(grammar, f"Well. {call.replace('get_weather', 'f')}")
    assert accepts(grammar, f"Well. {call} Done.")
    single = free_calls(format, (STRICT,), "", {}, many=False)
    assert single is not None
    assert accepts(single, f"Well. {call}")
    assert not accepts(single, f"{call} and {call}")


def test_calls_without_a_marker_cannot_be_held() -> None:
    for name in ("llama3", "harmony"):
        assert free_calls(answer_format(name, "none"), (STRICT,), "", {}, many=True) is None


def test_control_tokens_are_written_as_tokens() -> None:
    format = answer_format("mistral_args", "mistral")
    special = {"[TOOL_CALLS]": 5, "[ARGS]": 6, "[THINK]": 7, "[/THINK]": 8}
    grammar = forced_calls(format, TOOLS, "", special, many=False)
    assert "<[5]>" in grammar
    assert "[TOOL_CALLS]" not in grammar
    assert "THINK]" not in grammar

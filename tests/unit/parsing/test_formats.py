"""Every format's answers: what they mean, wherever they are cut, and that no text is lost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.parsing import (
    AnswerFormat,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    answer_format,
    reasoning_parser_names,
    tool_parser_names,
)
from tests.unit.parsing.outputs import CASES, TOOLS, Case

Meaning = tuple[str, str, list[list[str]]]


def meaning(
    case: Case, pieces: Iterable[str], at_end: bool = True, format: AnswerFormat | None = None
) -> Meaning:
    """Text, reasoning and calls; each part checked for its order. at_end: whether the pieces are
    all there is. format: in place of the case's."""
    tools = TOOLS if case.with_tools else ()
    format = format or answer_format(case.tools, case.thinking)
    parser = format.parser(case.prompt, tools)
    text, reasoning, calls = "", "", []
    parts = [part for piece in pieces for part in parser.push(piece, [])]
    for part in [*parts, *(parser.finish() if at_end else ())]:
        match part:
            case TextPart(more):
                assert more
                text += more
            case ReasoningPart(more):
                assert more
                reasoning += more
            case ToolCallPart(place, arguments, call_id, name):
                if name is not None:
                    assert place == len(calls)
                    assert call_id
                    calls.append([name, ""])
                else:
                    assert call_id is None
                    assert arguments
                assert place == len(calls) - 1
                calls[place][1] += arguments
    return text, reasoning, calls


def expected(case: Case) -> Meaning:
    return case.text, case.reasoning, [list(call) for call in case.calls]


def ids(case: Case) -> str:
    return f"{case.tools}-{case.thinking}-{case.answer[:40]!r}"


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_whole(case: Case) -> None:
    assert meaning(case, [case.answer]) == expected(case)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_cut_anywhere(case: Case) -> None:
    answer = case.answer
    for at in range(1, len(answer)):
        assert meaning(case, [answer[:at], answer[at:]]) == expected(case), at
    assert meaning(case, answer) == expected(case)
    assert meaning(case, ["", *answer, ""]) == expected(case)


@pytest.mark.parametrize("case", [c for c in CASES if len(c.answer) <= 45], ids=ids)
def test_cut_at_any_two_places(case: Case) -> None:
    for one, two in itertools.combinations(range(1, len(case.answer)), 2):
        pieces = case.answer[:one], case.answer[one:two], case.answer[two:]
        assert meaning(case, pieces) == expected(case), (one, two)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_shown_stays_true(case: Case) -> None:
    """Whatever has come, what was shown of it is a beginning of what the whole means."""
    for size in range(len(case.answer)):
        text, reasoning, calls = meaning(case, [case.answer[:size]], at_end=False)
        assert case.text.startswith(text)
        assert case.reasoning.startswith(reasoning)
        assert len(calls) <= len(case.calls)
        for (name, arguments), (whole_name, whole) in zip(calls, case.calls, strict=False):
            assert name == whole_name
            assert whole.startswith(arguments)


def test_names_are_unique_and_complete() -> None:
    tried = {case.tools for case in CASES} | {case.thinking for case in CASES}
    known = {*tool_parser_names(), *reasoning_parser_names()}
    assert known - tried <= {"deepseek_v4", "seed_oss"}


FORMATS = sorted({(case.tools, case.thinking, case.prompt) for case in CASES})
FRAGMENTS = sorted(
    {case.answer[i : i + 9] for case in CASES for i in range(0, len(case.answer), 9)}
)
SPECIAL = ["<tool_call>", "</tool_call>", '{"name": "now"', ', "arguments": {', "}", "]", "[", '"']


@given(
    which=st.sampled_from(FORMATS),
    pieces=st.lists(st.sampled_from([*FRAGMENTS, *SPECIAL]) | st.text(max_size=5), max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_garbage_means_the_same_however_it_is_cut(
    which: tuple[str, str, str], pieces: list[str], cuts: list[int]
) -> None:
    answer = "".join(pieces)
    case = Case(which[0], answer, thinking=which[1], prompt=which[2])
    ends = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    parts = [answer[a:b] for a, b in itertools.pairwise(ends)]
    whole = meaning(case, [answer])
    assert meaning(case, parts) == whole
    assert meaning(case, answer) == whole


@given(arguments=st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans())))
@settings(max_examples=100, deadline=None)
def test_json_arguments_come_back_as_they_were_written(arguments: dict[str, object]) -> None:
    written = json.dumps(arguments)
    call = f'{{"name": "now", "arguments": {written}}}'
    for case in (
        Case("hermes", f"<tool_call>\n{call}\n</tool_call>"),
        Case("llama3", call),
        Case("mistral", f"[TOOL_CALLS][{call}]"),
        Case("mistral_args", f"[TOOL_CALLS]now[ARGS]{written}"),
    ):
        assert meaning(case, case.answer) == ("", "", [["now", written]])


@given(
    city=st.text(st.characters(exclude_categories=["Cs"])).filter(
        lambda text: "<" not in text and "\r" not in text
    ),
    days=st.integers(),
)
@settings(max_examples=100, deadline=None)
def test_parameters_become_the_json_they_stand_for(city: str, days: int) -> None:
    answer = (
        f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n"
        f"<parameter=days>\n{days}\n</parameter>\n</function>\n</tool_call>"
    )
    _, _, [[_, arguments]] = meaning(Case("qwen3_coder", answer), answer)
    assert json.loads(arguments) == {"city": city, "days": days}


def test_long_answers_cost_in_proportion() -> None:
    """A hundred times the text takes nowhere near ten thousand times the steps: no quadratic
    rescans. Counted by what is handed to the scanner's buffer, not by a clock."""
    parser = answer_format("hermes", "think").parser("", TOOLS)
    scan = parser._reading._scan  # type: ignore[attr-defined]
    held = 0
    for piece in ["<tool_call>", '{"name": "now", "arguments": {"a": "', *["x" * 10] * 5000]:
        parser.push(piece, [])
        held = max(held, len(scan._text))
    assert held < 100
    for piece in ["<"] * 3000 + [" "] * 3000 + ["\n<tool_call>"] * 300:
        parser.push(piece, [])
        held = max(held, len(scan._text))
    assert held < 400

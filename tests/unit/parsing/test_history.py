"""Messages in the shape that templates want: one rule at a time."""

from __future__ import annotations

from typing import Any

from octavo.parsing import Dialect, Tool, answer_format, shaped
from octavo.parsing.dialect import Wants
from octavo.parsing.history import short_id

TOOL = Tool("look_up", "Look a word up.")


def dialect(tools: str = "hermes", **wants: bool) -> Dialect:
    return Dialect(answer_format(tools, "none"), {}, Wants(**wants), "")


def calling(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "look_up", "arguments": '{"w": 1}'}}
        for one in ids
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls, **more}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


USER = {"role": "user", "content": "hi"}


def test_arguments_are_objects_or_text() -> None:
    def arguments(given: Any, **wants: bool) -> Any:
        message = calling("a")
        message["tool_calls"][0]["function"]["arguments"] = given
        [shown] = shaped([message], (), dialect(**wants))
        assert message["tool_calls"][0]["function"]["arguments"] == given
        return shown["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"w": 1}') == {"w": 1}
    assert arguments({"w": 1}) == {"w": 1}
    assert arguments("") == {}
    assert arguments('{"w": ') == '{"w": '  # what a model broke off stays what it is
    assert arguments("[1]") == "[1]"
    assert arguments("[" * 100_000) == "[" * 100_000
    assert arguments({"w": "é"}, text_arguments=True) == '{"w": "é"}'
    assert arguments('{"w": 1}', text_arguments=True) == '{"w": 1}'


def test_ids_of_nine_letters() -> None:
    messages = shaped([calling("call_1"), result("call_1", "x")], (), dialect(short_ids=True))
    first = messages[0]["tool_calls"][0]["id"]
    assert first == messages[1]["tool_call_id"] == short_id("call_1")
    assert len(first) == 9
    assert short_id("abcdefgh1") == "abcdefgh1"


def test_one_call_a_message_with_its_result_behind_it() -> None:
    history = [USER, calling("a", "b", content="Well."), result("b", "B"), result("a", "A"), USER]
    shown = shaped(history, (), dialect(single_calls=True))
    assert [m["role"] for m in shown] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert [m["content"] for m in shown if m["role"] == "tool"] == ["A", "B"]
    assert [m["content"] for m in shown if m["role"] == "assistant"] == ["Well.", ""]
    lonely = shaped([calling("a", "b"), USER], (), dialect(single_calls=True))
    assert [m["role"] for m in lonely] == ["assistant", "assistant", "user"]


def test_thoughts_under_their_other_name() -> None:
    [shown] = shaped(
        [calling("a", reasoning_content="Hm", content="So")], (), dialect(thinking=True)
    )
    assert (shown["thinking"], shown["content"]) == ("Hm\nSo", "")


def test_calls_and_results_as_text() -> None:
    history = [calling("a", content="Well."), result("a", "A"), result("b", "B"), USER]
    called, answered, user = shaped(history, (), dialect(written=True, answered=True))
    assert called == {
        "role": "assistant",
        "content": 'Well.\n<tool_call>\n{"name": "look_up", "arguments": {"w": 1}}\n</tool_call>',
    }
    assert answered["role"] == "user"
    assert answered["content"].count("<tool_response>") == 2
    assert user == USER
    [named] = shaped([calling("a")], (), dialect("deepseek_v31", written=True))
    assert named["content"] == (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>"
        '{"w": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )


def test_tools_in_the_system_message_or_in_the_first_users() -> None:
    added = shaped([USER], (TOOL,), dialect(described=True))
    assert [m["role"] for m in added] == ["system", "user"]
    assert '"name": "look_up"' in added[0]["content"]
    joined = shaped(
        [{"role": "system", "content": "Be brief."}, USER], (TOOL,), dialect(described=True)
    )
    assert joined[0]["content"].startswith("Be brief.\n\n# Tools")
    without = shaped([USER], (TOOL,), dialect(described=True, system=False))
    assert [m["role"] for m in without] == ["user"]
    assert without[0]["content"].endswith("\n\nhi")
    assert shaped([USER], (), dialect(described=True)) == [USER]

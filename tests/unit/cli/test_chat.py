"""`octavo chat` with a scripted engine: the commands, the loop, and what stays in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo.cli.app import app
from octavo.cli.chat.conversation import Conversation
from octavo.cli.chat.reader import read_message
from octavo.errors import InvalidParameterError


def chat(*lines: str, args: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(app, ["chat", "fake", *args], input="".join(f"{x}\n" for x in lines))


def test_answers_go_to_stdout_and_nothing_else(engine):
    result = chat("Hello", "/stats", "And you?")
    assert result.exit_code == 0
    assert result.stdout == "Hi there\nHi there\n"
    assert engine.prompts == [
        "<user>Hello<assistant>",
        "<user>Hello<assistant>Hi there<user>And you?<assistant>",
    ]
    assert engine.closed


def test_calls_are_readable_and_go_back_as_the_model_wrote_them(engine):
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    engine.answer, engine.tokenizer.source = f"Ok.\n{call}", "tools <tool_call> arguments"
    assert chat("Hello", "And?").stdout == "Ok.\ntool call: look {}\n" * 2
    assert engine.prompts[1] == f"<user>Hello<assistant>Ok.\n{call}<user>And?<assistant>"


def test_exit_and_its_names_leave(engine):
    for word in ("/exit", "/quit", "/bye"):
        assert chat(word, "not read").stdout == ""


def test_reset_forgets_turns_and_keeps_the_system_message(engine):
    chat("one", "/reset", "two", args=("--system", "S"))
    assert engine.prompts[1] == "<system>S<user>two<assistant>"


def test_system_sets_shows_and_removes(engine):
    result = chat("one", "/system Be terse.", "two", "/system", "/system none", "three")
    assert engine.prompts[1:] == [
        "<system>Be terse.<user>two<assistant>",
        "<user>three<assistant>",
    ]
    assert "Be terse." in result.stderr


def test_undo_and_retry(engine):
    chat("one", "/undo", "two", "/retry")
    assert engine.prompts == ["<user>one<assistant>", *["<user>two<assistant>"] * 2]


def test_undo_and_retry_of_nothing(engine):
    result = chat("/undo", "/retry")
    assert "nothing to take back" in result.stderr
    assert "nothing to answer" in result.stderr
    assert engine.prompts == []


def test_set_changes_the_next_answer(engine):
    chat("one", "/set temperature 0", "/set stop=\\n", "two", "/set seed 3", "/set seed none", "3")
    assert [p.temperature for p in engine.params] == [0.7, 0.0, 0.0]
    assert [p.stop for p in engine.params] == [(), ("\n",), ("\n",)]
    assert engine.params[2].seed is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/set heat 1", "no setting 'heat'"),
        ("/set top_k many", "top_k: cannot read 'many'"),
        ("/nonsense", "/nonsense: no such command"),
        ("/save", "/save: name a file"),
        ("/load /nowhere/x.json", "/load: "),
        ("/save /nowhere/x.json", "/save: "),
        ("/save /", "/save: "),
    ],
)
def test_wrong_command_is_explained_and_the_chat_goes_on(engine, line, message):
    result = chat(line, "Hello")
    assert result.exit_code == 0
    assert message in result.stderr
    assert result.stdout == "Hi there\n"


def test_save_and_load(engine, tmp_path: Path):
    path = tmp_path / "talk.json"
    chat("one", f"/save {path}", args=("--system", "S"))
    roles = [m["role"] for m in json.loads(path.read_text())["messages"]]
    assert roles == ["system", "user", "assistant"]
    chat(f"/load {path}", "two")
    assert engine.prompts[1] == "<system>S<user>one<assistant>Hi there<user>two<assistant>"


def test_interrupt_stops_the_answer_and_not_the_program(engine):
    engine.interrupt_at = 2
    result = chat("Hello", "again")
    assert result.exit_code == 0
    assert result.stdout == "Hi \nHi \n"
    assert "(stopped)" in result.stderr
    # What was said before the interrupt stays said.
    assert engine.prompts[1] == "<user>Hello<assistant>Hi <user>again<assistant>"


def test_refused_question_leaves_no_trace(engine):
    result = chat("x" * 5000, "short")
    assert "octavo: prompt of 5" in result.stderr
    assert engine.prompts == ["<user>short<assistant>"]


def test_help_lists_every_command(engine):
    from octavo.cli.chat.commands import COMMANDS

    result = chat("/help")
    assert all(f"/{name}" in result.stderr for name in COMMANDS)


def test_model_without_a_template_is_refused(engine):
    engine.tokenizer.chat_template = None
    result = chat("Hello")
    assert result.exit_code == 1
    assert "no chat template" in result.stderr


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["plain"], "plain"),
        (["first \\", "second"], "first \nsecond"),
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""one line"""'], "one line"),
    ],
)
def test_long_messages(lines, message):
    source = iter(lines)
    assert read_message(lambda prompt: next(source)) == message


def test_end_of_input_inside_a_block_is_the_end():
    source = iter(['"""', "a"])

    def ask(prompt: str) -> str:
        try:
            return next(source)
        except StopIteration:
            raise EOFError from None

    with pytest.raises(EOFError):
        read_message(ask)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"messages": [{"role": "robot", "content": "x"}]}',
        "{}",
        "[" * 100_000,
        '{"messages": 1' + "0" * 5000 + "}",
    ],
)
def test_bad_file_changes_nothing(tmp_path: Path, text: str):
    path = tmp_path / "bad.json"
    path.write_text(text)
    conversation = Conversation("S", [{"role": "user", "content": "u"}])
    with pytest.raises(InvalidParameterError, match="/load"):
        conversation.load(path)
    assert len(conversation.messages()) == 2

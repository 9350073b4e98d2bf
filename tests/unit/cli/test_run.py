"""`octavo run` with a scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo.cli.app import app
from octavo.cli.session import Session
from octavo.errors import ModelNotFoundError


def octavo(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, args, input=stdin)


def test_text_goes_to_stdout_and_speed_to_stderr(engine):
    result = octavo("run", "fake", "Hello")
    assert result.exit_code == 0
    assert result.stdout == "Hi there\n"
    assert "prompt 22 tokens" in result.stderr
    assert "output 8 tokens" in result.stderr
    assert engine.closed


THOUGHT = "<think>\nHm, so.\n</think>\n\nHello."


def test_thinking_goes_to_stderr(engine):
    engine.answer, engine.tokenizer.source = THOUGHT, "a template with <think> and </think>"
    result = octavo("run", "fake", "Hello")
    assert result.stdout == "Hello.\n"
    assert result.stderr.startswith("Hm, so.\n\n")
    result = octavo("run", "fake", "Hello", "-q")
    assert (result.stdout, result.stderr) == ("Hello.\n", "")
    shown = json.loads(octavo("run", "fake", "Hello", "--json").stdout)
    assert (shown["text"], shown["reasoning"]) == ("Hello.", "Hm, so.")
    assert octavo("run", "fake", "Hello", "--raw").stdout == f"{THOUGHT}\n"
    engine.tokenizer.source = "a template"
    assert octavo("run", "fake", "Hello").stdout == f"{THOUGHT}\n"


def test_thinking_that_is_broken_off_is_shown(engine):
    engine.answer, engine.tokenizer.source = THOUGHT, "a template with <think> and </think>"
    engine.interrupt_at = 12
    result = octavo("run", "fake", "Hello")
    assert result.exit_code == 130
    assert result.stdout == "\n"
    assert result.stderr.startswith("Hm, s\n\n")


CALLS = (
    "<think>\nHm.\n</think>\n\nOk.\n"
    '<tool_call>\n{"name": "look", "arguments": {"at": [1, "é"]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>\nDone.'
)


def test_calls_have_a_line_each(engine):
    engine.answer = CALLS
    engine.tokenizer.source = "tools <tool_call> arguments <think> </think>"
    shown = octavo("run", "fake", "Hello", "-q").stdout
    assert shown == 'Ok.\ntool call: look {"at": [1, "é"]}\ntool call: go {}\n\nDone.\n'
    found = json.loads(octavo("run", "fake", "Hello", "--json").stdout)
    assert found["text"] == "Ok.\nDone."
    assert found["tool_calls"] == [
        {"name": "look", "arguments": '{"at": [1, "é"]}'},
        {"name": "go", "arguments": "{}"},
    ]
    assert octavo("run", "fake", "Hello", "--raw").stdout == CALLS + "\n"


def test_a_call_that_is_broken_off_ends_its_line(engine):
    engine.answer = '<tool_call>{"name": "look", "arguments": {"at": '
    engine.tokenizer.source = "tools <tool_call> arguments"
    assert octavo("run", "fake", "Hello").stdout == 'tool call: look {"at": \n'


def test_harmony_is_read_too(engine):
    engine.answer = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.look <|constrain|>json<|message|>{}<|call|>"
    )
    engine.tokenizer.source = "<|channel|> <|message|>"
    result = octavo("run", "fake", "Hello")
    assert result.stdout == "tool call: look {}\n"
    assert result.stderr.startswith("Hm.\n\n")


def test_prompt_is_a_user_message_unless_raw(engine):
    octavo("run", "fake", "Hello", "--system", "Be kind.")
    octavo("run", "fake", "Hello", "--raw")
    assert engine.prompts == ["<system>Be kind.<user>Hello<assistant>", "\x01Hello"]


def test_model_without_a_template_continues_text(engine):
    engine.tokenizer.chat_template = None
    octavo("run", "fake", "Hello")
    assert engine.prompts == ["\x01Hello"]


@pytest.mark.parametrize("args", [(), ("-",)])
def test_prompt_from_stdin(engine, args):
    assert octavo("run", "fake", *args, stdin="from a pipe").exit_code == 0
    assert engine.prompts == ["<user>from a pipe<assistant>"]


def test_prompt_from_a_file(engine, tmp_path: Path):
    (tmp_path / "prompt.txt").write_text("from a file ü", encoding="utf-8")
    assert octavo("run", "fake", "-f", str(tmp_path / "prompt.txt")).exit_code == 0
    assert engine.prompts == ["<user>from a file ü<assistant>"]


def test_two_prompts_are_wrong_usage(engine, tmp_path: Path):
    result = octavo("run", "fake", "text", "--file", "also.txt")
    assert result.exit_code == 2
    assert result.stderr == "octavo: give a PROMPT or --file, not both\n"


def test_missing_file_is_wrong_usage(engine):
    result = octavo("run", "fake", "--file", "/nowhere/prompt.txt")
    assert result.exit_code == 2
    assert "/nowhere/prompt.txt" in result.stderr


def test_json_holds_the_answer_and_the_numbers(engine):
    answer = json.loads(octavo("run", "fake", "Hello", "--json").stdout)
    assert answer["text"] == "Hi there"
    assert answer["finish_reason"] == "stop"
    assert answer["stats"]["output_tokens"] == len(answer["token_ids"]) == 8
    assert answer["stats"]["ttft_s"] <= answer["stats"]["total_s"]


def test_quiet_and_verbose(engine):
    assert octavo("run", "fake", "Hello", "-q").stderr == ""
    assert octavo("run", "fake", "Hello", "-v").stderr.startswith("the plan\n")


def test_sampling_options_reach_the_engine(engine):
    octavo("run", "fake", "x", "--temperature", "0.5", "--top-k", "7", "--stop", "a", "--stop", "b")
    params = engine.params[0]
    assert (params.temperature, params.top_k, params.stop) == (0.5, 7, ("a", "b"))


def test_interrupt_stops_the_answer_and_leaves_nothing_behind(engine):
    engine.interrupt_at = 3
    result = octavo("run", "fake", "Hello")
    assert result.exit_code == 130
    assert result.stdout == "Hi t\n"
    assert engine.aborted == ["cli-1"]
    assert engine.closed


def test_error_is_one_line_and_a_hint(monkeypatch: pytest.MonkeyPatch):
    def fail(cls: type, model: str, choices: object, chats: bool) -> None:
        raise ModelNotFoundError(f"no model {model!r}")

    monkeypatch.setattr(Session, "open", classmethod(fail))
    result = octavo("run", "nothing", "Hello")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "octavo: no model 'nothing'"
    assert lines[1].startswith("hint: octavo pull --list")
    assert len(lines) == 2
    debug = octavo("--debug", "run", "nothing", "Hello")
    assert isinstance(debug.exception, ModelNotFoundError)


def test_too_long_a_prompt_is_an_error_of_one_line(engine):
    result = octavo("run", "fake", "x" * 5000)
    assert result.exit_code == 1
    assert result.stderr.startswith("octavo: prompt of 5")
    assert engine.closed


def test_no_tokenizer_says_what_to_do(engine):
    engine.tokenizer = None
    result = octavo("run", "fake", "Hello")
    assert result.exit_code == 1
    assert "no tokenizer" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("run",),
        ("run", "fake", "x", "--max-tokens", "0"),
        ("run", "fake", "x", "--max-tokens", "-1"),
        ("run", "fake", "x", "--temperature", "hot"),
        ("run", "fake", "x", "--kv-cache-memory", "much"),
        ("nonsense",),
        ("bench", "engine", "fake", "--concurrency", "1,x"),
        ("bench", "engine", "fake", "--concurrency", "0"),
        ("pull",),
    ],
)
def test_wrong_usage_exits_with_2(args):
    result = octavo(*args)
    assert result.exit_code == 2
    assert result.stderr
    assert "Traceback" not in result.stderr

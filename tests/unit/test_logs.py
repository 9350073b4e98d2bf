"""Logs: one line a record, in either form, whatever is in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import logs
from octavo.errors import InvalidParameterError


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging as it was before."""
    loggers = [logging.getLogger(name) for name in (None, "octavo", "uvicorn")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    monkeypatch.setattr(logs, "_chosen", None)
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def record(message: str, name: str = "octavo.test", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "file", 1, message, (), None)
    made.fields = fields
    return made


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.none()))
def test_json_is_one_line_that_says_everything(message: str, fields: dict[str, object]) -> None:
    line = logs.JsonFormatter().format(record(message, **fields))
    assert line.isascii()
    assert "\n" not in line
    shown = json.loads(line)
    assert shown.items() >= fields.items()
    assert "message" in fields or shown["message"] == message


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text() | st.lists(st.text())))
def test_text_fields_cannot_make_up_lines_or_other_fields(fields: dict[str, object]) -> None:
    line = logs.TextFormatter().format(record("done", **fields))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    head, _, pairs = line.partition(": done")
    assert head.endswith("Z INFO octavo.test")
    for key, value in fields.items():
        quoted = json.dumps(value, separators=(",", ":"))
        assert f" {key}={quoted}" in pairs or f" {key}={value}" in pairs


def test_times_are_utc_to_the_millisecond() -> None:
    made = record("x")
    made.created, made.msecs = 1_700_000_000.042, 42.0
    assert json.loads(logs.JsonFormatter().format(made))["time"] == "2023-11-14T22:13:20.042Z"


def test_announcements_stay_short() -> None:
    assert logs.TextFormatter().format(record("ready", name="octavo")) == "octavo: ready"


@pytest.mark.usefixtures("restored")
def test_levels_and_formats_are_checked() -> None:
    with pytest.raises(InvalidParameterError, match=r"log_level.*'loud'"):
        logs.configure("loud")
    with pytest.raises(InvalidParameterError, match=r"log_format.*'xml'"):
        logs.configure("info", "xml")  # type: ignore[arg-type]


@pytest.mark.usefixtures("restored")
def test_a_child_logs_like_its_parent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert logs.child_environment() == {}
    logs.configure("warning", "json")
    for name, value in logs.child_environment().items():
        monkeypatch.setenv(name, value)
    logs.configure("debug", "text")
    logs.configure_child()
    logging.getLogger("octavo.x").info("not shown")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("octavo.x").exception("shown")
    shown = json.loads(capsys.readouterr().err)
    assert (shown["message"], shown["level"]) == ("shown", "error")
    assert "ValueError: why" in shown["exception"]


@pytest.mark.usefixtures("restored")
def test_a_childs_lines_become_records(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.pass_on(logs.JsonFormatter().format(record("a record")).encode() + b"\n")
    logs.pass_on(b"terminate called \xff\x1b[0m\n")
    logs.pass_on(b"  \n")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["message"] == "a record"
    assert second["message"] == "terminate called \ufffd\x1b[0m"
    assert second["logger"] == "octavo.engine.stderr"

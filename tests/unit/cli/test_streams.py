"""Standard streams that are closed, full, or of an encoding that cannot say what is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from octavo.cli.app import app


def octavo(redirect: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its streams as a shell would set them."""
    unbuffered = {"PYTHONUNBUFFERED": ""} | env
    line = f'exec "$0" -m octavo "$@" {redirect}'
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, *args],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | unbuffered,
    )


@pytest.mark.parametrize(
    ("redirect", "args", "reason"),
    [
        (">/dev/full", ("pull", "--list"), "No space left on device"),
        (">/dev/full", ("run", "--help"), "No space left on device"),
        (">&-", ("pull", "--list"), "Bad file descriptor"),
    ],
)
def test_an_answer_that_nobody_gets_is_an_error_of_one_line(redirect, args, reason):
    result = octavo(redirect, *args)
    assert result.returncode == 1
    assert result.stderr == f"octavo: cannot write or read: {reason}\n"


def test_notes_that_nobody_gets_are_no_error():
    assert octavo("2>&-", "pull", "--list").returncode == 0
    assert octavo("2>&-", "pull").returncode == 2


def test_closed_input_is_wrong_usage():
    result = octavo("<&-", "embed", "no-such-model")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "octavo: standard input: Bad file descriptor\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_that_the_encoding_cannot_say(encoding):
    code = (
        "import sys; from octavo.cli.streams import prepare; prepare();"
        "print('a\\u00fc\\u65e5\\ud800b')"
    )
    env = os.environ | {"PYTHONIOENCODING": encoding}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)
    said = {"latin-1": b"a\xfc??b\n"}.get(encoding, "aü日?b\n".encode())
    assert out.stdout == said


@pytest.mark.parametrize("command", [("run", "fake"), ("chat", "fake"), ("embed", "fake")])
def test_input_that_is_not_text_is_wrong_usage(engine, command):
    result = CliRunner().invoke(app, command, input=b"text \xff more")
    assert result.exit_code == 2
    assert "standard input: expected UTF-8 text, but byte 5 is 0xff" in result.stderr


def test_a_file_that_is_not_text_is_wrong_usage(engine, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"text \xff more")
    result = CliRunner().invoke(app, ["run", "fake", "--file", str(path)])
    assert result.exit_code == 2
    assert f"--file: {path}: expected UTF-8 text, but byte 5 is 0xff" in result.stderr


@pytest.mark.parametrize("place", ["", "missing/report.json"])
@pytest.mark.parametrize("command", ["eval ppl", "bench engine", "quantize -o new.gguf"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(tmp_path, command, place):
    args = [*command.split(), "no-such-model", "--json", str(tmp_path / place)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert "cannot be" in result.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/a/file"), "/a/file: Permission denied"),
        (MemoryError("20 GB"), "out of memory: 20 GB"),
        (OSError(28, "No space left on device"), "cannot write or read: No space left on device"),
    ],
)
def test_what_the_system_refuses_is_an_error_of_one_line(engine, monkeypatch, error, message):
    def refuse() -> None:
        raise error

    monkeypatch.setattr(engine, "step", refuse)
    result = CliRunner().invoke(app, ["run", "fake", "Hello"])
    assert result.exit_code == 1
    assert result.stderr == f"octavo: {message}\n"


@pytest.mark.parametrize("where", ["octavo.cli.app", "octavo.cli.streams"])
def test_ctrl_c_before_a_command_runs_is_silent(where):
    code = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class Interrupt(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {where!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from octavo.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")

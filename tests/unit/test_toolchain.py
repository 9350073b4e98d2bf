"""scripts/toolchain.sh: what is missing is said in one sentence, before anything is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "toolchain.sh"


def toolchain(**env: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, **env}
    return subprocess.run(["sh", SCRIPT], env=env, capture_output=True, text=True, check=False)


def _program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: ")
    return line


def test_complete_machine_is_accepted_and_the_python_named():
    result = toolchain()
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == sys.executable


def test_missing_compiler():
    assert "no C++ compiler found" in _refused(toolchain(CXX="no-such-compiler"))


def test_old_compiler_is_named(tmp_path: Path):
    old = _program(
        tmp_path / "g++", 'case $1 in --version) echo "g++ (GCC) 9.4.0";; *) exit 1;; esac'
    )
    line = _refused(toolchain(CXX=old))
    assert "g++ (GCC) 9.4.0" in line
    assert "GCC 11" in line


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('case $1 in --version) echo "Python 3.9.2";; *) exit 1;; esac', "found: Python 3.9.2"),
        ("case $2 in *ensurepip*) exit 1;; esac", "has no venv module"),
        ("case $2 in *Python.h*) exit 1;; esac", "headers"),
    ],
)
def test_python_that_lacks_something(tmp_path: Path, body: str, words: str):
    assert words in _refused(toolchain(PYTHON=_program(tmp_path / "python3", body)))


def test_no_python_at_all():
    assert "Python 3.11 or newer is needed" in _refused(toolchain(PYTHON="no-such-python"))

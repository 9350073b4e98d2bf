"""The server against llm-comply: requests, JSON schemas and checks of three chat protocols.

The suite is fetched at test time into Octavo's cache; the engine behind the server is scripted, so
that the protocol is judged and not a model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.weights.cache import cache_folder, locked
from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

REQUIREMENT = "llm-comply==0.5.0"
IMAGES = "no model with image input is supported; refused by name"
SUITES = {
    "openai-chat": 9,
    "open-responses": 13,
    "anthropic": 9,
}
"""Formats, and how many cases each has."""

EXCLUDED = {
    "chat-image-input": IMAGES,
    "chat-reasoning-summary": "skips itself for models not known to reason",
    "image-input": IMAGES,
    "reasoning-summary": "skips itself for models not known to reason",
    "anth-image-input": IMAGES,
    "anth-thinking-display": "skips itself for models not known to think",
}
"""Baseline: cases that do not pass, with the reason."""


@pytest.fixture(scope="module")
def suite() -> Path:
    """A folder to put on PYTHONPATH. Skips if pip cannot fetch the suite."""
    folder = cache_folder() / "external" / REQUIREMENT.replace("==", "-")
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
        [*command, REQUIREMENT], capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs {REQUIREMENT}, which pip could not fetch: {done.stderr[-300:]}")
    scratch.rename(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")) as live:
        yield live


@pytest.mark.parametrize("form", SUITES)
def test_cases(suite: Path, server: LiveServer, form: str) -> None:
    """Every case passes except the baseline's, and those still do not."""
    arguments = ["--format", form, "-u", f"{server.url}/v1", "-k", "x", "-m", MODEL]
    if form == "anthropic":
        arguments += ["--auth-header", "x-api-key", "--no-bearer"]
        arguments += ["-H", "anthropic-version:2023-06-01"]
    run = subprocess.run(
        [sys.executable, "-m", "llm_comply.cli", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(suite)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    results = {case["id"]: case for case in json.loads(run.stdout)["results"]}
    failed = {name for name, case in results.items() if case["status"] != "passed"}
    expected = EXCLUDED.keys() & results.keys()
    assert failed == expected, {name: results[name] for name in failed - expected}
    assert len(results) == SUITES[form]

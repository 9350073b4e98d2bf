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

from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")) as live:
        yield live


@pytest.mark.parametrize("form", SUITES)
def test_cases(llm_comply: Path, server: LiveServer, form: str) -> None:
    """Every case passes except the baseline's, and those still do not."""
    arguments = ["--format", form, "-u", f"{server.url}/v1", "-k", "x", "-m", MODEL]
    if form == "anthropic":
        arguments += ["--auth-header", "x-api-key", "--no-bearer"]
        arguments += ["-H", "anthropic-version:2023-06-01"]
    run = subprocess.run(
        [sys.executable, "-m", "llm_comply.cli", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(llm_comply)},
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

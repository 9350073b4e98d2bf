"""Schemathesis on the server's own OpenAPI document: what it makes of the schemas, valid or not,
gets an answer that the document describes, and never a 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.live_server import LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

RUNS = {
    "all": ("fuzzing", "^/(v1/(messages|responses|models|chat|completions)|api)"),
    # Every keyword of the widest schemas, on routes that do not generate.
    "wide": ("coverage", "^/v1/(messages/count_tokens|responses/input_tokens)"),
}
CHECKS = (
    "not_a_server_error,content_type_conformance,response_schema_conformance,"
    "status_code_conformance,negative_data_rejection"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")) as live:
        yield live


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_own_document(server: LiveServer, tmp_path: Path, run: str) -> None:
    phase, paths = RUNS[run]
    pytest.importorskip("schemathesis", reason="needs schemathesis")
    options = ["--phases", phase, "-n", "10", "--seed", "1", "-c", CHECKS]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *options,
            *("--include-path-regex", paths, "--generation-allow-x00", "false"),
        ],
        env={**os.environ, "NO_COLOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "Tested: 0" not in done.stdout

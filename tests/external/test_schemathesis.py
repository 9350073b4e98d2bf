"""Schemathesis on the server's own OpenAPI document: what it makes of the schemas, valid or not,
gets an answer that the document describes, and never a 5xx. And on the vendors' documents, as
llm-comply brings them: what they call valid is answered as they say, or refused.
"""

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


VENDORS = {
    "openresponses.json": ("/v1", "/responses"),
    "anthropic.json": ("", "/v1/messages"),
    "openai_chat.json": ("/v1", "/chat/completions"),
}
"""Documents: where their paths begin, and the path that is tried."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")) as live:
        yield live


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_own_document(server: LiveServer, tmp_path: Path, run: str) -> None:
    phase, paths = RUNS[run]
    where = ["--include-path-regex", paths, "--phases", phase, "-c", CHECKS]
    schemathesis(f"{server.url}/openapi.json", *where, "-n", "10", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("document", VENDORS)
def test_vendors_documents(
    server: LiveServer, llm_comply: Path, tmp_path: Path, document: str
) -> None:
    base, path = VENDORS[document]
    where = ["--url", server.url + base, "--include-path", path]
    checks = "not_a_server_error,content_type_conformance,response_schema_conformance"
    how = ["--phases", "fuzzing", "--mode", "positive", "-n", "25", "-c", checks]
    specs = llm_comply / "llm_comply" / "specs"
    schemathesis(str(specs / document), *where, *how, cwd=tmp_path)


def schemathesis(document: str, *options: str, cwd: Path) -> None:
    """Run it; it must try something and find nothing."""
    pytest.importorskip("schemathesis", reason="needs schemathesis")
    always = ["--seed", "1", "--generation-allow-x00", "false", "--suppress-health-check", "all"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", document, *options, *always],
        env={
            **os.environ,
            "NO_COLOR": "1",
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks" if "--url" in options else "",
            "PYTHONPATH": str(Path(__file__).parent),
        },
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Tested: 0" not in done.stdout

"""The server against langchain-tests for ChatOpenAI: a client that checks every chunk it is sent.

The suite is fetched at test time into Octavo's cache and runs in a process of its own; the engine
behind the server is scripted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from octavo.weights.cache import cache_folder, locked
from tests.external.assistant import FACTORY
from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

REQUIREMENTS = ("langchain-tests==1.1.9", "langchain-openai==1.7.4", "langchain-core==1.8.3")
EXCLUDED = {
    "test_stream_time": "measures time against recorded answers",
}
"""Tests that are not run, with the reason."""
SKIPPED = {
    "test_anthropic_inputs": "the client speaks OpenAI's protocol",
    "test_audio_inputs": "no model takes audio",
    "test_image_inputs": "no model takes images",
    "test_image_tool_message": "no model takes images",
    "test_pdf_inputs": "no model takes PDF files",
    "test_pdf_tool_message": "no model takes PDF files",
}
"""Baseline: tests that skip themselves, because the class below does not claim these abilities."""
FAILED: dict[str, str] = {}
"""Baseline: tests that fail, with the reason."""

CASES = f'''
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

import os


class TestOctavo(ChatModelIntegrationTests):
    supports_json_mode = True

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        url = os.environ["OCTAVO_URL"]
        more = {{"temperature": 0, "stream_usage": True}}
        return {{"model": "{MODEL}", "base_url": url, "api_key": "x", **more}}

    @property
    def model_override_value(self):
        return "{MODEL}"
'''


@pytest.fixture(scope="module")
def suite() -> Path:
    """A folder to put on PYTHONPATH. Skips if pip cannot fetch the suite."""
    folder = cache_folder() / "external" / REQUIREMENTS[0].replace("==", "-")
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
        [*command, *REQUIREMENTS], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs {REQUIREMENTS[0]}, which pip could not fetch: {done.stderr[-300:]}")
    scratch.rename(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny", context=16384)
    with live_server(folder, backend="helpful", factory=FACTORY) as live:
        yield live


def test_chat_openai(suite: Path, server: LiveServer, tmp_path: Path) -> None:
    """Every test passes except the baseline's, and those still do not."""
    cases, report = tmp_path / "test_octavo.py", tmp_path / "report.xml"
    cases.write_text(CASES)
    excluded = " and ".join(f"not {name}" for name in EXCLUDED)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(cases), "-q", "-k", excluded),
            *("-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto", "-W", "ignore"),
            *("-o", "asyncio_default_test_loop_scope=session"),  # the client is kept over tests
            *(f"--junitxml={report}", f"--rootdir={tmp_path}"),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(suite),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OCTAVO_URL": f"{server.url}/v1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert report.is_file(), run.stdout[-2000:] + run.stderr[-2000:]
    states: dict[str, set[str]] = {"failed": set(), "skipped": set()}
    found = list(ElementTree.parse(report).iter("testcase"))  # our own report
    for case in found:
        name = case.attrib["name"].partition("[")[0]
        if case.find("failure") is not None or case.find("error") is not None:
            states["failed"].add(name)
        elif case.find("skipped") is not None:
            states["skipped"].add(name)
    assert states["failed"] == set(FAILED), run.stdout[-6000:]
    assert states["skipped"] == set(SKIPPED)
    assert len(found) >= 41

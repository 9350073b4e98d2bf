"""The server against the API tests that the openai and anthropic SDKs ship: each method called
with few and with all parameters, its answer walked strictly against the SDK's types.

The tests were written for a mock, which answers anything; what an honest server refuses is in the
baseline, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from octavo.serving import ServerOptions
from octavo.serving.openai.responses.answer import Response
from octavo.serving.openai.responses.store import ResponseStore, Stored
from tests.external.sdist import fetch_sdist
from tests.serving.live_server import LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

VERSIONS = {"openai": "3.57.0", "anthropic": "2.15.0"}
"""As pyproject.toml asks for."""
NAMES = (
    *("gpt-6-astra", "gpt-3.5-turbo-instruct", "text-embedding-3-small", "model"),
    *("claude-opus-5-5", "model_id"),
)
KEPT = ("resp_677efb5139a88190b512bc3fef8e535d", "response_id")  # what the tests look up

FILES = {
    "openai": (
        *("chat/test_completions.py", "test_completions.py", "test_models.py"),
        *("test_responses.py", "responses/test_input_items.py", "responses/test_input_tokens.py"),
    ),
    "anthropic": ("test_messages.py", "test_models.py"),
}
STORED_CHATS = "chat completions are not stored, so that there is nothing to list or to look up"
NO_MODEL = "names no model, which is right only for prompt templates on OpenAI's server"
EVERYTHING = "asks for all there is at once: sound, containers, moderation; refused by name"
BASELINE = {
    "openai": {
        "chat.test_completions": {
            STORED_CHATS: {"retrieve", "update", "list", "delete", "list_with_all_params"},
            EVERYTHING: {
                "create_with_all_params_overload_1",
                "create_with_all_params_overload_2",
            },
        },
        "test_completions": {
            "best_of 0 and stop sequences of a mock": {
                "create_with_all_params_overload_1",
                "create_with_all_params_overload_2",
            }
        },
        "test_models": {"models are not deleted while they are served": {"delete"}},
        "test_responses": {
            NO_MODEL: {"create_overload_1", "create_overload_2"},
            EVERYTHING: {
                "create_with_all_params_overload_1",
                "create_with_all_params_overload_2",
            },
            "streams are not kept to be taken up again": {
                "retrieve_overload_2",
                "retrieve_with_all_params_overload_2",
            },
            "conversations cannot be compacted": {"compact", "compact_with_all_params"},
        },
        "responses.test_input_items": {"limit 0 is refused": {"list_with_all_params"}},
        "responses.test_input_tokens": {
            EVERYTHING: {"count_with_all_params"},
            "counts an empty conversation": {"count"},
        },
    },
    "anthropic": {
        "test_messages": {
            EVERYTHING: {
                "count_tokens_with_all_params",
                "create_with_all_params_overload_1",
                "create_with_all_params_overload_2",
            },
        }
    },
}
"""By file and reason, the calls that do not succeed."""


class Keeping(ResponseStore):
    """Holds responses that cannot be deleted, so that every test finds them."""

    def drop(self, response_id: str) -> None:
        if response_id not in KEPT:
            super().drop(response_id)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    with live_server(model, server=ServerOptions(served_model_names=NAMES)) as live:
        store = Keeping()
        item = {"type": "message", "role": "user", "content": [], "id": "msg_1"}
        for kept in KEPT:
            response = Response(id=kept, created_at=0, model="model", status="cancelled")
            store.put(Stored(response, "", [{**item, "status": "completed"}], []))
        live.app.state.responses = store
        yield live


@pytest.mark.slow
@pytest.mark.parametrize("sdk", VERSIONS)
def test_sdk(server: LiveServer, tmp_path: Path, sdk: str) -> None:
    """Every test passes except the baseline's, and those still do not."""
    if version(sdk) != VERSIONS[sdk]:
        pytest.skip(f"needs {sdk} {VERSIONS[sdk]}, whose tests these are; got {version(sdk)}")
    failed, reports = run_suite(server, tmp_path, sdk)
    expected = {
        f"{file}.{call}"
        for file, reasons in BASELINE[sdk].items()
        for calls in reasons.values()
        for call in calls
    }
    new = {name: reports[name] for name in failed - expected}
    assert not new, new
    assert failed == expected
    assert len(reports) > len(failed)


def run_suite(
    server: LiveServer, tmp_path: Path, sdk: str, files: tuple[str, ...] = ()
) -> tuple[set[str], dict[str, str]]:
    """(calls of which a variant failed, a report of each call). files: other ones than FILES."""
    root = fetch_sdist(sdk, VERSIONS[sdk])
    base = f"{server.url}/v1" if sdk == "openai" else server.url
    report = tmp_path / "report.xml"
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--noconftest", "-p", "sdk_fixtures"),
            *("-q", "-k", "strict and method", "-o", "addopts=", "-o", "filterwarnings="),
            *("-p", "no:cacheprovider", f"--junitxml={report}", "--rootdir", str(root)),
            *(str(root / "tests" / "api_resources" / name) for name in files or FILES[sdk]),
        ],
        env={
            **os.environ,
            "TEST_API_BASE_URL": base,
            "OCTAVO_SDK": sdk,
            "PYTHONPATH": str(Path(__file__).parent),
        },
        cwd=root,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return read_report(report)


def read_report(path: Path) -> tuple[set[str], dict[str, str]]:
    """Of a JUnit file. Each call is made by the synchronous and the asynchronous client."""
    failed: set[str] = set()
    reports: dict[str, str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        folder = case.attrib["classname"].split("api_resources.")[-1].rsplit(".", 1)[0]
        test = case.attrib["name"].partition("[")[0]
        name = f"{folder}.{test.removeprefix('test_method_')}"
        fault = next(iter([*case.findall("failure"), *case.findall("error")]), None)
        if fault is not None:
            failed.add(name)
            reports[name] = (fault.text or "")[-600:]
        reports.setdefault(name, "")
    return failed, reports

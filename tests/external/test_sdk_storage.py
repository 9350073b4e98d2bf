"""Files, batches and embeddings against the openai SDK's own API tests, which walk each answer
strictly against the SDK's types. What they look up is put there under the names that they use."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from octavo.serving import ServerOptions
from octavo.serving.batches import Batch
from octavo.serving.files import StoredFile
from tests.external.test_sdk_suites import VERSIONS, run_suite
from tests.serving.live_server import live_server
from tests.serving.tiny_model import write_tiny_model

NAMES = ("text-embedding-3-small",)
FILE_ID, INPUT_ID, BATCH_ID = "file_id", "input_file_id", "batch_id"
EXPECTED: dict[str, str] = {
    "test_files.list_with_all_params": "lists after a file that is not there",
    "test_files.content": "is answered by a mock of its own",
    "test_embeddings.create": "asks for base64, which the SDK's strict types do not know",
    "test_batches.list_with_all_params": "lists after a batch that is not there",
    "test_batches.cancel": "the batch has been cancelled by the test before",
}
"""Calls that do not succeed, with the reason."""


def stock(storage: Any, folder: Path) -> None:
    """Put there what the tests look up; deleting leaves it there for the next test."""
    files, batches = storage.files, storage.batches
    for name in (FILE_ID, INPUT_ID):
        files.path(name).write_bytes(b"{}\n")
        files._files[name] = StoredFile(name, 3, 1, "in.jsonl", "batch")
    files.delete = lambda file_id: None
    batches._batches[BATCH_ID] = Batch(
        BATCH_ID, "/v1/responses", INPUT_ID, 1, "file-1", "file-2", status="in_progress"
    )
    batches.start = lambda app: None


@pytest.mark.slow
def test_sdk(tmp_path: Path) -> None:
    """Every test passes except EXPECTED's, and those still do not."""
    if version("openai") != VERSIONS["openai"]:
        pytest.skip(f"needs openai {VERSIONS['openai']}, whose tests these are")
    model = write_tiny_model(tmp_path / "tiny")
    options = ServerOptions(served_model_names=NAMES, data_dir=str(tmp_path / "data"))
    with live_server(model, server=options, task="embed") as live:
        stock(live.app.state.serving.storage, tmp_path)
        tests = ("test_files.py", "test_batches.py", "test_embeddings.py")
        failed, reports = run_suite(live, tmp_path, "openai", tests)
    assert failed == set(EXPECTED), {name: reports[name] for name in failed - set(EXPECTED)}
    assert len(reports) > 10

"""NVIDIA's client of the Open Inference Protocol, unchanged, against the gRPC server.

It runs in a process of its own: two descriptions of one protocol cannot live in one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.serving import ServerOptions
from octavo.weights.cache import cache_folder, locked
from tests.serving.live_server import MODEL, live_server
from tests.serving.tiny_model import write_tiny_model

REQUIREMENTS = ("tritonclient==2.73.0", "python-rapidjson==1.25")
SCRIPT = """
import json, sys
import numpy as np
import tritonclient.grpc as triton

client = triton.InferenceServerClient(sys.argv[1])
texts = triton.InferInput("text_input", [2], "BYTES")
texts.set_data_from_numpy(np.array([b"a", b"k"], dtype=np.object_))
answer = client.infer("tiny", [texts], request_id="9", parameters={"max_tokens": 3, "top_k": 1})
try:
    client.get_model_metadata("other")
    refused = None
except triton.InferenceServerException as error:
    refused = error.status()
metadata = client.get_model_metadata("tiny", as_json=True)
print(json.dumps({
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "models": [client.is_model_ready("tiny"), client.is_model_ready("other")],
    "server": client.get_server_metadata(as_json=True)["name"],
    "inputs": [one["name"] for one in metadata["inputs"]],
    "texts": [text.decode() for text in answer.as_numpy("text_output")],
    "id": answer.get_response().id,
    "refused": refused,
}))
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """A folder to put on PYTHONPATH. Skips, saying what is missing."""
    pytest.importorskip("grpc_reflection", reason="grpcio-reflection is not installed")
    folder = cache_folder() / "external" / REQUIREMENTS[0].replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    scratch = folder.with_name(f"{folder.name}.part")
    options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--quiet", "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(scratch)]
    done = subprocess.run(
        [*command, *REQUIREMENTS], capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs {REQUIREMENTS[0]}, which pip could not fetch: {done.stderr[-300:]}")
    scratch.rename(folder)


def test_triton_client(packages: Path, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    options = ServerOptions(served_model_names=(MODEL,), grpc_port=0)
    with live_server(model, server=options) as live:
        port = live.app.state.serving.rpc.port
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, f"127.0.0.1:{port}"],
            env={**os.environ, "PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "live": True,
        "ready": True,
        "models": [True, False],
        "server": "octavo",
        "inputs": ["text_input"],
        "texts": ["bcd", "lmn"],
        "id": "9",
        "refused": "StatusCode.NOT_FOUND",
    }

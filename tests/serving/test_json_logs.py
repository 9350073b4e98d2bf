"""`--log-format json` with real processes: every line is a record, whatever wrote it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from octavo.engine.engine import Engine
from octavo.engine.options import EngineOptions
from octavo.engine.worker import Progress
from tests.serving import tiny_model as scripted
from tests.serving.live_server import reserved_port, wait_until

SCRIPT = (
    "import sys\n"
    "from octavo.engine import EngineOptions\n"
    "from octavo.serving import ServerOptions, serve\n"
    "model, port, factory = sys.argv[1:]\n"
    "serve(EngineOptions(model=model, backend='fast'), ServerOptions(port=int(port),"
    " served_model_names=('tiny',), log_format='json'), factory=factory)\n"
)
NOISE = "some library prints \x1b[31mthis\x1b[0m"


def noisy(options: EngineOptions, progress: Progress, located: object) -> Engine:
    """A factory that writes to standard error as a crash in native code would."""
    os.write(2, NOISE.encode() + b"\n")
    return scripted.make_engine(options, progress, located)


def test_every_line_is_a_record(tiny_model: Path) -> None:
    with reserved_port() as port:
        written = written_by_a_server_that_loses_an_engine(tiny_model, port)
    records = [json.loads(line) for line in written.splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    noise = [r for r in records if r["logger"] == "octavo.engine.stderr"]
    assert [r["message"] for r in noise] == [NOISE] * 2  # of both engines
    plans = [r for r in records if r["logger"] == "octavo.engine" and "kv cache" in r["message"]]
    assert len(plans) == 2
    requests = {r["request_id"]: r for r in records if r["logger"] == "octavo.request"}
    assert requests["before"]["output_tokens"] == requests["after"]["output_tokens"] == 3
    assert "private" not in written


def written_by_a_server_that_loses_an_engine(model: Path, port: int) -> str:
    """Its standard error: a request, the engine killed, another request, SIGTERM."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", SCRIPT, str(model), str(port), f"{__name__}:noisy"]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            wait_ready(http)
            body = {"model": "tiny", "prompt": "private", "max_tokens": 3}
            answer = http.post("/v1/completions", json=body, headers={"X-Request-Id": "before"})
            assert answer.status_code == 200, answer.text
            (engine,) = psutil.Process(process.pid).children()
            engine.kill()
            wait_until(lambda: {*psutil.Process(process.pid).children()} - {engine})
            wait_ready(http)
            answer = http.post("/v1/completions", json=body, headers={"X-Request-Id": "after"})
            assert answer.status_code == 200, answer.text
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        return process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def wait_ready(http: httpx.Client) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            if http.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end
        time.sleep(0.05)

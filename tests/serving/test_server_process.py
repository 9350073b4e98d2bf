"""`serve` as a program: how it starts, idles, is probed and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.engine.options import EngineOptions
from octavo.engine.worker import Progress
from octavo.serving import ServerOptions
from tests.serving.live_server import LiveServer, live_server, reserved_port, wait_until
from tests.serving.tiny_model import FACTORY, make_engine, write_tiny_model

SCRIPT = (
    "import sys\n"
    "from octavo.engine import EngineOptions\n"
    "from octavo.serving import ServerOptions, serve\n"
    "model, backend, port, factory, drain_s = sys.argv[1:]\n"
    "serve(EngineOptions(model=model, backend=backend), ServerOptions(port=int(port),"
    " served_model_names=('tiny',), shutdown_timeout_s=int(drain_s), log_level='info'),"
    " factory=factory)\n"
)


@dataclass
class Program:
    """A running server program and its engine."""

    process: subprocess.Popen[bytes]
    http: httpx.Client

    def wait_status(self, status: int) -> httpx.Response:
        """/health once it has this status."""
        end = time.monotonic() + 120
        while True:
            try:
                answer = self.http.get("/health")
                if answer.status_code == status:
                    return answer
            except httpx.ConnectError:
                pass
            assert time.monotonic() < end
            time.sleep(0.02)

    def wait_draining(self) -> httpx.Response:
        """/health/ready once a signal has arrived."""
        end = time.monotonic() + 20
        while (answer := self.http.get("/health/ready")).json()["status"] != "draining":
            assert time.monotonic() < end, answer.text
            time.sleep(0.01)
        return answer

    def engine(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child


@contextmanager
def program(
    model: Path | str,
    backend: str = "fast",
    factory: str = FACTORY,
    stderr: int = subprocess.PIPE,
    drain_s: int = 60,
) -> Iterator[Program]:
    """stderr: a pipe holds 64 kB, then the server waits for its reader."""
    with (
        reserved_port() as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(model), backend, str(port), factory, str(drain_s)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            stderr=stderr,
        )
        try:
            yield Program(process, http)
        finally:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def test_idle_costs_no_cpu_and_sigterm_stops_cleanly(tiny_model: Path) -> None:
    with program(tiny_model) as server:
        server.wait_status(200)
        body = {"model": "tiny", "prompt": "a", "max_tokens": 3, "temperature": 0}
        assert server.http.post("/v1/completions", json=body).json()["choices"][0]["text"] == "bcd"
        processes = [psutil.Process(server.process.pid), server.engine()]

        def cpu_s() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        def two_seconds() -> float:
            before = cpu_s()
            time.sleep(2)
            return cpu_s() - before

        # The clock ticks in hundredths; what follows the first request may take its time.
        assert any(two_seconds() <= 0.04 for _ in range(5))
        engine = processes[1]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) in (0, -signal.SIGTERM)
        assert not engine.is_running()


def test_running_streams_finish_after_sigterm(tiny_model: Path) -> None:
    with program(tiny_model, "slow") as server:
        server.wait_status(200)
        body = {
            "model": "tiny",
            "prompt": "x",
            "max_tokens": 100,
            "ignore_eos": True,
            "stream": True,
        }
        with server.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert rest[-2] == "data: [DONE]"
        assert '"length"' in rest[-4]
        server.process.wait(20)


def test_interrupt_reaches_the_server_and_not_the_engine(tiny_model: Path) -> None:
    """Ctrl-C goes to the whole group; the engine leaves it to the server."""
    with program(tiny_model) as server:
        server.wait_status(200)
        engine = server.engine()
        engine.send_signal(signal.SIGINT)
        engine.send_signal(signal.SIGTERM)
        body = {"model": "tiny", "prompt": "a", "max_tokens": 3}
        assert server.http.post("/v1/completions", json=body).status_code == 200
        server.process.send_signal(signal.SIGINT)
        server.process.wait(20)
        assert not engine.is_running()


def test_killing_the_server_ends_the_engine(tiny_model: Path) -> None:
    with program(tiny_model, "slow") as server:
        server.wait_status(200)
        engine = server.engine()
        server.process.kill()
        server.process.wait()
        gone, _ = psutil.wait_procs([engine], timeout=20)
        assert gone or engine.status() == psutil.STATUS_ZOMBIE


def test_a_missing_model_ends_the_program_with_its_error(tmp_path: Path) -> None:
    with program(tmp_path / "nothing.gguf") as server:
        assert server.process.wait(60) == 1
        assert server.process.stderr is not None
        first, *_, last = server.process.stderr.read().decode().strip().splitlines()
        assert first.startswith("octavo: listening on http://127.0.0.1:")
        assert "ModelNotFoundError" in last
        assert "nothing.gguf" in last


def test_the_port_listens_while_the_engine_loads(tmp_path: Path) -> None:
    """/health says what it waits for; completions are refused with 503 and Retry-After."""
    factory, model = f"{__name__}:slow_to_load", write_tiny_model(tmp_path)
    with live_server(model, factory=factory, wait=False) as server:
        answer = server.wait_status(503)
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["status"] == "starting"
        end = time.monotonic() + 20
        while "loading weights 43 %" not in answer.json().get("detail", ""):
            assert time.monotonic() < end
            time.sleep(0.02)
            answer = server.http.get("/health")
        refused = server.complete()
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "loading weights 43 %" in refused.json()["error"]["message"]
        assert server.metrics()["octavo:engine_up"] == 0
        assert server.http.get("/v1/models").status_code == 200
        (model / "loaded").touch()
        server.wait_status(200)
        assert server.metrics()["octavo:engine_up"] == 1


def slow_to_load(options: EngineOptions, progress: Progress, located: object) -> object:
    """A factory that says how far it is and goes on when there is a file "loaded"."""
    progress(43, 100, "loading weights")
    while not (Path(options.model) / "loaded").exists():
        time.sleep(0.01)
    return make_engine(options, progress, located)


def once_and_again(options: EngineOptions, progress: Progress, located: object) -> object:
    """A factory that makes one engine, and the next one only when there is a file "again"."""
    folder = Path(options.model)
    if (folder / "once").exists():
        while not (folder / "again").exists():
            time.sleep(0.01)
    (folder / "once").touch()
    return make_engine(options, progress, located)


def test_health_tells_of_a_dead_engine_and_recovers(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path)
    with live_server(model, factory=f"{__name__}:once_and_again") as server:
        os.kill(server.client.pid, signal.SIGKILL)
        answer = server.wait_status(503)
        assert answer.json()["status"] == "restarting"
        (model / "again").touch()
        server.wait_status(200)
        assert server.metrics()["octavo:engine_restarts_total"] == 1
        body = {"model": "tiny", "prompt": "a", "max_tokens": 3, "temperature": 0}
        assert server.http.post("/v1/completions", json=body).json()["choices"][0]["text"] == "bcd"


def test_a_full_queue_is_refused(tiny_model: Path) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 60, "ignore_eos": True}
    with (
        live_server(tiny_model, backend="slow", max_num_seqs=2, max_queue=2) as server,
        ThreadPoolExecutor(20) as threads,
    ):
        with server.engine_stopped():
            jobs = [
                threads.submit(server.http.post, "/v1/completions", json=body) for _ in range(20)
            ]
            wait_until(lambda: sum(job.done() for job in jobs) == 16)  # two rows, two may wait
        answers = [job.result() for job in jobs]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) == 16
        for answer in refused:
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["code"] == "queue_full"
        assert server.metrics()["octavo:admission_rejections_total"] == len(refused)


def test_api_keys_guard_all_but_health(tiny_model: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), api_keys=("one", "two"))
    with live_server(tiny_model, server=options) as server:
        for path in ("/v1/models", "/metrics", "/version", "/openapi.json"):
            for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "Basic one"}):
                answer = server.http.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
            good = server.http.get(path, headers={"Authorization": "Bearer two"})
            assert good.status_code == 200
        assert server.http.get("/health").status_code == 200


def test_metrics_parse_and_count(server: LiveServer) -> None:
    before = server.metrics()
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 5, "n": 2, "temperature": 0}
    server.http.post("/v1/completions", json=body)
    text = server.http.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "num_preemptions",
        "prompt_tokens",
        "generation_tokens",
        "request_success",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
    ):
        family = families[f"octavo:{name}"]
        assert family.documentation
        assert all(sample.labels["model_name"] == "tiny" for sample in family.samples)
    after = server.metrics()

    def grown(name: str) -> float:
        return after[f"octavo:{name}"] - before.get(f"octavo:{name}", 0)

    assert grown("generation_tokens_total") == 10
    assert grown("prompt_tokens_total") == 3
    assert grown("request_success_total") == 2
    assert grown("time_to_first_token_seconds_count") == 1
    assert grown("inter_token_latency_seconds_count") == 8


def test_the_openapi_document_refers_to_nothing_missing(server: LiveServer) -> None:
    document = server.http.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models"} <= document["paths"].keys()
    schemas = document["components"]["schemas"]
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(document))
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_a_model_without_a_tokenizer_takes_token_ids(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny_model / name).read_bytes())
    with live_server(tmp_path) as server:
        body = {"model": "tiny", "prompt": [97], "max_tokens": 2, "temperature": 0, "logprobs": 0}
        choice = server.http.post("/v1/completions", json=body).json()["choices"][0]
        assert choice["logprobs"]["tokens"] == ["token_id:98", "token_id:99"]
        for path, field in (("/v1/completions", "prompt"), ("/v1/chat/completions", "messages")):
            texts = {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}
            answer = server.http.post(path, json={"model": "tiny", field: texts[field]})
            assert answer.status_code == 400
            assert "no tokenizer" in answer.json()["error"]["message"]


@pytest.mark.model
def test_a_real_model_answers() -> None:
    """SmolLM2 on the CPU backend; streamed and whole answers are the same."""
    factory = "octavo.engine.worker:load_engine"
    with live_server("smollm2", backend="cpu", factory=factory, max_model_len=2048) as server:
        body = {
            "model": "tiny",
            "prompt": "The capital of France is",
            "temperature": 0,
            "max_tokens": 2,
        }
        answer = server.http.post("/v1/completions", json=body, timeout=60).json()
        assert answer["choices"][0]["text"] == " Paris."
        path = "/v1/chat/completions"
        chat = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Count from one to ten in words. 🙂"}],
            "temperature": 0,
            "max_tokens": 40,
        }
        whole = server.http.post(path, json=chat, timeout=60).json()
        streamed = server.http.post(path, json={**chat, "stream": True}, timeout=60).text
        chunks = [json.loads(line[6:]) for line in streamed.split("\n\n")[:-2]]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert text == whole["choices"][0]["message"]["content"]
        assert len(text) > 20

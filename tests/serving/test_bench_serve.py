"""`octavo bench serve` against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.load import ClosedLoop, Lengths, OpenLoop, PromptMix, Target, bench_server
from octavo.errors import OctavoError
from tests.serving.live_server import LiveServer

MIX = PromptMix(Lengths.parse("5-9", ""), Lengths.parse("6", ""))


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", "bench", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_closed_loop(server: LiveServer, endpoint: Any):
    target = Target(server.url, endpoint=endpoint)
    result = bench_server(target, ClosedLoop(4), MIX, num_requests=12)
    assert (result.num_good, result.errors) == (12, {})
    assert result.output_tokens == 12 * 6
    assert result.ttft is not None
    assert 0 < result.ttft.p50 <= result.ttft.p99
    assert all(0 < len(record.piece_times_s) <= 6 for record in result.records)


def test_open_loop_sends_on_time_whatever_the_server_does(slow_server: LiveServer):
    result = bench_server(Target(slow_server.url), OpenLoop(200.0), MIX, num_requests=40)
    assert result.num_good == 40
    assert sorted(r.sent_s for r in result.records) == pytest.approx(
        sorted(m for m, _ in zip(OpenLoop(200.0).moments(), range(40), strict=False))
    )


def test_failures_are_counted_not_raised(server: LiveServer):
    target = Target(server.url, model="nobody")
    result = bench_server(target, ClosedLoop(2), MIX, num_requests=4, warmup=0)
    assert (result.num_good, result.errors) == (0, {"HTTP 404": 4})


def test_no_server_is_one_clear_error():
    with pytest.raises(OctavoError, match="does not list a model"):
        bench_server(Target("http://127.0.0.1:9"), ClosedLoop(1), MIX)


def test_command_writes_what_it_measured(server: LiveServer, tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "prompt": "a"}\n{"timestamp": 0.05, "input_length": 3}\n')
    files = ["--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]
    done = _bench("--url", server.url, "--trace", str(trace), "--slo", "ttft=30", *files)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["num_good"], report["slo_met"]) == (2, 2)
    assert len(report["records"]) == 2
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert "goodput" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rate", "0"], "--rate"),
        (["--rate", "1", "--trace", "x"], "--trace"),
        (["--trace", "/no/such"], "no such file"),
        (["--extra-body", "[]"], "--extra-body"),
        (["--input-len", "x"], "--input-len"),
        (["--slo", "fast"], "slo"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str], named: str):
    done = _bench("--url", "http://127.0.0.1:9", *arguments)
    assert done.returncode in (1, 2)
    assert named in done.stderr
    assert "Traceback" not in done.stderr

"""What is compared, and how each engine is asked for it. All rates in tokens per second."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """One line of the table. metric: the field of an `octavo bench engine` result."""

    name: str
    input_len: int
    output_len: int
    streams: int
    metric: str


BIG_MODEL_BYTES = 500_000_000


def tasks_for(model: Path) -> tuple[Task, ...]:
    """The lines of one model's table; a big one gets fewer streams, so that a run takes minutes."""
    streams, output_len = (16, 32) if model.stat().st_size > BIG_MODEL_BYTES else (32, 64)
    return (
        Task("prefill 512", 512, 1, 1, "prefill_tps"),
        # From an almost empty context, as llama-bench's tg128: one prompt token, then 128.
        Task("decode 128", 1, 129, 1, "decode_tps"),
        Task(
            f"{streams} streams, 128 in, {output_len} out",
            128,
            output_len,
            streams,
            "output_tps",
        ),
    )


def measure_octavo(task: Task, model: Path, threads: int) -> float:
    """One fresh process, one warm-up, one measured run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        lengths = ["--input-len", task.input_len, "--output-len", task.output_len]
        options = ["--concurrency", task.streams, "--repeat", 1, "--threads", threads]
        command = [sys.executable, "-m", "octavo", "bench", "engine", model, *lengths, *options]
        _run([*command, "--json", out])
        (result,) = json.loads(out.read_text())["results"]
    return float(result[task.metric]["median"])


def measure_llama(task: Task, model: Path, threads: int, binaries: Path) -> float:
    """llama-bench for one stream, llama-batched-bench for many; both warm up by themselves."""
    if task.streams == 1:
        return _llama_bench(task, model, threads, binaries)
    return _llama_batched_bench(task, model, threads, binaries)


def _llama_bench(task: Task, model: Path, threads: int, binaries: Path) -> float:
    prompt, output = (task.input_len, 0) if task.output_len == 1 else (0, task.output_len - 1)
    sizes = ["-p", prompt, "-n", output, "-t", threads, "-r", 1]
    text = _run([binaries / "llama-bench", "-m", model, *sizes, "-o", "json"])
    (result,) = json.loads(text)
    return float(result["avg_ts"])


def _llama_batched_bench(task: Task, model: Path, threads: int, binaries: Path) -> float:
    context = task.streams * (task.input_len + task.output_len)
    sizes = ["-npp", task.input_len, "-ntg", task.output_len, "-npl", task.streams, "-c", context]
    command = [binaries / "llama-batched-bench", "-m", model, *sizes, "-t", threads]
    text = _run([*command, "--output-format", "jsonl"])
    (result,) = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return task.streams * task.output_len / float(result["t"])


def _run(command: list[Any]) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\nfailed:\n{done.stderr[-2000:]}")
    return done.stdout

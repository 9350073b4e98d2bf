"""From starting `octavo run` to its first token, and the most memory it held.

Whole fresh processes on a warm page cache, in turn with llama.cpp's where --llama-bin names its
programs: llama-completion, or llama-bench with the same few tokens (it does not print them, so for
llama.cpp the time is always that of the whole process; compare it with Octavo's "whole").

    python -m benchmarks.startup smollm2 gemma3-270m --llama-bin DIR --json startup.json

Memory: the most resident pages of the process, the model file's mapped ones included, against the
budget 1.1 x (file + KV of the tokens used) + 100 MB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.report import table, write_json

PROMPT = "The capital of France is"
SLACK = 100_000_000


@dataclass(frozen=True)
class Launch:
    """One process: seconds to its first byte of output and to its end, peak resident bytes."""

    first_s: float
    whole_s: float
    peak_bytes: int


@dataclass
class Startup:
    """A model's launches; octavo[i] and llama_cpp[i] ran one right after the other."""

    model: str
    file_bytes: int
    kv_bytes: int
    octavo: list[Launch] = field(default_factory=list)
    llama_cpp: list[Launch] = field(default_factory=list)

    @property
    def budget_bytes(self) -> int:
        return (self.file_bytes + self.kv_bytes) * 11 // 10 + SLACK

    @property
    def peak_bytes(self) -> int:
        return max(launch.peak_bytes for launch in self.octavo)

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "budget_bytes": self.budget_bytes, "peak_bytes": self.peak_bytes}


# Compiled once, as of an installed package.
_ENV = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def launch(command: list[str]) -> Launch:
    """Run a command to its end. Raises SystemExit with its last words if it fails."""
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=_ENV)
        assert process.stdout is not None
        with process.stdout:
            process.stdout.read(1)
            first = time.perf_counter() - start
            process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        whole = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            words = errors.read().decode(errors="replace")
            raise SystemExit(f"{' '.join(command)}\nfailed:\n{words[-2000:]}")
    return Launch(first, whole, usage.ru_maxrss * 1024)


def octavo_command(path: Path, threads: int) -> list[str]:
    options = ["--raw", "--quiet", "--max-tokens", "1", "--threads", str(threads)]
    return [sys.executable, "-m", "octavo", "run", str(path), PROMPT, *options]


def llama_command(path: Path, threads: int, folder: Path) -> list[str]:
    """Raises SystemExit if the folder has neither program."""
    common = ["-m", str(path), "-t", str(threads), "-n", "1"]
    completion, bench = folder / "llama-completion", folder / "llama-bench"
    if completion.exists():
        return [str(completion), *common, "-p", PROMPT, "-no-cnv", "--no-warmup"]
    if bench.exists():
        return [str(bench), *common, "-p", "5", "-r", "1", "--no-warmup"]
    raise SystemExit(f"--llama-bin {folder}: no llama-completion and no llama-bench in there")


def kv_bytes(path: Path, num_tokens: int) -> int:
    """Bytes of the KV blocks that so many tokens of one request take."""
    from octavo.backends import BackendOptions, get_backend
    from octavo.models import build_graph, config_from
    from octavo.weights import open_checkpoint

    checkpoint = open_checkpoint(path)
    config = config_from(checkpoint)
    settings = BackendOptions()
    graph = build_graph(config, checkpoint.tensors)
    plan = get_backend("cpu").plan(graph, checkpoint, config, settings)
    return -(-num_tokens // settings.block_size) * plan.kv_bytes_per_block


def measure(model: str, options: argparse.Namespace) -> Startup:
    from octavo.weights import resolve

    path = resolve(model)
    result = Startup(model, path.stat().st_size, kv_bytes(path, 8))
    octavo = octavo_command(path, options.threads)
    llama = llama_command(path, options.threads, options.llama_bin) if options.llama_bin else None
    for command in filter(None, (octavo, llama)):
        launch(command)  # warms the page cache
    for _ in range(options.repeat):
        result.octavo.append(launch(octavo))
        if llama:
            result.llama_cpp.append(launch(llama))
    return result


def report(results: list[Startup]) -> str:
    """Seconds: median (lowest-highest)."""
    head = ["model", "first token, s", "whole, s", "llama.cpp whole, s", "peak MB", "budget MB"]
    rows = [
        [
            r.model,
            _spread([x.first_s for x in r.octavo]),
            _spread([x.whole_s for x in r.octavo]),
            _spread([x.whole_s for x in r.llama_cpp]),
            f"{r.peak_bytes / 1e6:.0f}",
            f"{r.budget_bytes / 1e6:.0f}",
        ]
        for r in results
    ]
    return table(head, rows)


def main() -> None:
    options = _options()
    results = [measure(model, options) for model in options.models or ["smollm2"]]
    print(report(results))
    if options.json:
        write_json(options.json, [r.as_dict() for r in results], threads=options.threads)


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: smollm2")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-bin", type=Path, help="a folder with llama.cpp's programs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Two engines on the same cores: together they must get about as much done as one alone.

Threads that wait for each other spin a while and then sleep. Spinning without an end would take the
neighbour's time: two processes would then reach a fraction of what one reaches alone.

    python -m benchmarks.neighbours smollm2

Each repetition runs one process alone and then two at once, for the same number of seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import add_requests, steps
from benchmarks.report import table, write_json

from octavo.engine import Engine, EngineOptions


@dataclass
class Neighbours:
    """Tokens/s. alone[i] was measured right before pairs[i], of two processes at once."""

    alone: list[float] = field(default_factory=list)
    pairs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """What two get done together over what one does alone; 1: nothing is lost."""
        both = zip(self.pairs, self.alone, strict=True)
        return statistics.median(sum(pair) / one for pair, one in both)


def report(result: Neighbours) -> str:
    rows = [
        [str(i + 1), f"{one:.0f}", f"{a:.0f} + {b:.0f}", f"{(a + b) / one:.2f}"]
        for i, (one, (a, b)) in enumerate(zip(result.alone, result.pairs, strict=True))
    ]
    rows.append(["median", "", "", f"{result.ratio:.2f}"])
    return table(["tokens/s", "alone", "two at once", "sum / alone"], rows)


def work(model: str, threads: int, seconds: float) -> None:
    """A worker: load, say so, wait for each line on stdin, decode so long, print tokens/s."""
    options = EngineOptions(model, num_threads=threads, num_kv_blocks=64)
    engine = Engine.from_options(options)
    decode(engine, 0.2)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(decode(engine, seconds)), flush=True)
    engine.close()


def decode(engine: Engine, seconds: float) -> float:
    """Tokens/s of one stream; a request that ends is followed by the next."""
    count, start = 0, time.perf_counter()
    while True:
        add_requests(engine, 1, 16, 256)
        for tokens in steps(engine):
            count += tokens
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                engine.abort_all()
                engine.step()
                return count / elapsed


class Worker:
    """A child process that runs `work`."""

    def __init__(self, model: str, threads: int, seconds: float) -> None:
        options = ["--worker", "--threads", str(threads), "--seconds", str(seconds)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.neighbours", model, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def rate(self) -> float:
        return float(json.loads(self._read()))

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker ended early; its message is above")
        return line


def measure(options: argparse.Namespace) -> Neighbours:
    workers = [Worker(options.model, options.threads, options.seconds) for _ in range(2)]
    result = Neighbours()
    try:
        for _ in range(options.repeat):
            workers[0].go()
            result.alone.append(workers[0].rate())
            for worker in workers:
                worker.go()
            first, second = (worker.rate() for worker in workers)
            result.pairs.append((first, second))
    finally:
        for worker in workers:
            worker.close()
    return result


def main() -> None:
    options = _options()
    if options.worker:
        work(options.model, options.threads, options.seconds)
        return
    result = measure(options)
    print(report(result))
    if options.json:
        numbers = {"alone": result.alone, "pairs": result.pairs, "ratio": result.ratio}
        write_json(options.json, numbers, model=options.model, threads=options.threads)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

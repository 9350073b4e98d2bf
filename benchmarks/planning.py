"""How near `octavo plan` comes: its forecast of memory and speed beside real runs of the load.

In turn, each in a fresh process: the forecast, then an engine that answers one request alone and
then all of them at once. Memory is the most that the engine's process ever held.

    python -m benchmarks.planning smollm2 gemma3-270m qwen2.5-coder-1.5b --json planning.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import add_requests, steps, until_all_decode
from benchmarks.report import table, write_json

NAMES = {
    "memory": "memory, MB",
    "prefill_tps": "prompt, tokens/s",
    "decode_tps": "one answer, tokens/s",
    "total_tps": "all answers, tokens/s",
}

Numbers = dict[str, float]


@dataclass(frozen=True)
class Pair:
    """One forecast and the run right after it."""

    model: str
    forecast: Numbers
    real: Numbers

    def ratio(self, name: str) -> float:
        return self.forecast[name] / self.real[name]


def forecast(model: str, options: argparse.Namespace) -> Numbers:
    load = ["-c", options.concurrency, "-l", options.context, "--output", options.output]
    found = _json([sys.executable, "-m", "octavo", "plan", model, "--json", *map(str, load)])
    speeds = {name: found["speed"][name] for name in NAMES if name in found["speed"]}
    return {"memory": found["memory"]["total_bytes"] / 1e6, **speeds}


def real(model: str, options: argparse.Namespace) -> Numbers:
    command = [sys.executable, "-m", "benchmarks.planning", model, "--real"]
    load = ["--concurrency", options.concurrency, "--context", options.context]
    return _json([*command, *map(str, [*load, "--output", options.output])])


def run_load(model: str, options: argparse.Namespace) -> Numbers:
    """The load on an engine in this process."""
    from octavo.engine import Engine, EngineOptions

    many = max(64, options.concurrency)
    engine = Engine.from_options(EngineOptions(model=model, max_num_seqs=many))
    engine.grammars.prepare()  # as a server does
    prompt = options.context - options.output
    _answer(engine, 1, prompt, 4)  # the first steps touch memory
    prefill_s, decode_tps = _answer(engine, 1, prompt, options.output)
    _, total_tps = _answer(engine, options.concurrency, prompt, options.output)
    engine.close()
    speeds = {"prefill_tps": prompt / prefill_s, "decode_tps": decode_tps, "total_tps": total_tps}
    return {"memory": _peak_bytes() / 1e6, **speeds}


def _answer(engine: Any, streams: int, prompt: int, output: int) -> tuple[float, float]:
    """Seconds until every prompt is computed; tokens a second from there to the first end."""
    start = time.perf_counter()
    add_requests(engine, streams, prompt, output)
    until_all_decode(engine)
    prefill_s = time.perf_counter() - start
    times = []
    before = time.perf_counter()
    for count in steps(engine):
        now = time.perf_counter()
        if count == streams:
            times.append(now - before)
        before = now
    if not times:
        sys.exit("planning: an answer ended before the last prompt was computed; raise --output")
    return prefill_s, streams / statistics.median(times)


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _json(command: list[str]) -> Any:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"planning: {' '.join(command)} ended with code {done.returncode}")
    return json.loads(done.stdout)


def report(pairs: list[Pair]) -> str:
    """A line a number; medians, and the ratio of each pair as median and range."""
    rows = []
    for model in dict.fromkeys(pair.model for pair in pairs):
        mine = [pair for pair in pairs if pair.model == model]
        for name, title in NAMES.items():
            ratios = [pair.ratio(name) for pair in mine]
            planned, seen = ([side[name] for side in sides] for sides in _sides(mine))
            rows.append(
                [
                    f"{model}: {title}",
                    f"{statistics.median(planned):,.0f}",
                    f"{statistics.median(seen):,.0f}",
                    f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
                ]
            )
    return table(["", "forecast", "real", "ratio"], rows)


def _sides(pairs: list[Pair]) -> tuple[list[Numbers], list[Numbers]]:
    return [pair.forecast for pair in pairs], [pair.real for pair in pairs]


def main() -> None:
    options = _options()
    if options.real:
        print(json.dumps(run_load(options.models[0], options)))
        return
    pairs = []
    for _ in range(options.repeat):
        for model in options.models:
            pairs.append(Pair(model, forecast(model, options), real(model, options)))
            print(f"{model}: done", file=sys.stderr)
    load = f"{options.concurrency} x {options.context} tokens, {options.output} of them made"
    print(f"{load}\n\n{report(pairs)}")
    if options.json:
        results = [{"model": p.model, "forecast": p.forecast, "real": p.real} for p in pairs]
        write_json(options.json, results, load=load)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--real", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

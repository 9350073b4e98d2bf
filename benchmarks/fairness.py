"""`python -m benchmarks.fairness smollm2`: what one tenant's flood costs another.

A light tenant sends one request after another. Its time to first token is measured alone on the
whole machine, alone on half of it (half the threads, half the rows), beside a flood of another
tenant, and, to show what is at stake, as part of the same tenant as the flood. Sharing is fair if
the flood costs the light tenant no more than half the machine would.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from benchmarks.report import table, write_json
from benchmarks.serving.servers import Server

from octavo.machine import num_threads

WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "are", "as", "with"),
    *("his", "they", "at", "be", "this", "from"),
)
CASES = (
    "alone, whole machine",
    "alone, half the machine",
    "beside a flood",
    "in the flood's queue",
)
Times = dict[str, list[float]]


def main() -> None:
    """Run and report."""
    options = _options()
    threads = num_threads(options.threads)
    whole = _server("whole", options, threads, options.max_num_seqs)
    half = _server("half", options, max(1, threads // 2), max(1, options.max_num_seqs // 2))
    found: Times = {}
    with ExitStack() as stack:
        for server in (whole, half):
            server.start()
            stack.callback(server.stop)
        runs = (
            _light(whole.url, options),
            _light(half.url, options),
            _beside(whole.url, options, "light"),
            _beside(whole.url, options, "flood"),
        )
        for case, run in zip(CASES, runs, strict=True):
            print(case, file=sys.stderr)
            found[case] = asyncio.run(run)
    _report(found, options)


def _server(name: str, o: argparse.Namespace, threads: int, rows: int) -> Server:
    from octavo.weights import resolve

    command = [sys.executable, "-m", "octavo", "serve", resolve(o.model), "--port", "{port}"]
    command += ["--threads", threads, "--max-num-seqs", rows, "--served-model-name", "model"]
    command += ["--max-model-len", o.input_len + o.output_len + 256, "--log-level", "warning"]
    return Server(f"octavo-{name}", command, "/health/ready")


async def _light(url: str, o: argparse.Namespace, user: str = "light") -> list[float]:
    """Times to first token of one request after another, after one to warm up."""
    times = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        count = o.requests if user == "light" else min(2, o.requests)  # those are slow
        for place in range(count + 1):
            seconds = await _first_token_s(http, _body(o, place, user, o.input_len))
            times += [seconds] if place else []
            print(f"  {1e3 * seconds:.0f} ms", file=sys.stderr)
            await asyncio.sleep(o.pause)
    return times


async def _first_token_s(http: httpx.AsyncClient, body: dict[str, Any]) -> float:
    began, first = time.perf_counter(), 0.0
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        if answer.status_code != 200:
            raise SystemExit((await answer.aread()).decode())
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and not first:
                first = time.perf_counter() - began
    return first


async def _beside(url: str, o: argparse.Namespace, user: str) -> list[float]:
    """The light requests while `flood` others, of the tenant "flood", are always in flight."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:

        async def keep_sending(place: int) -> None:
            while True:
                place += o.flood
                await http.post("/v1/completions", json=_body(o, place, "flood", o.flood_input_len))

        flood = [asyncio.create_task(keep_sending(1000 + i)) for i in range(o.flood)]
        await asyncio.sleep(o.lead)
        try:
            return await _light(url, o, user)
        finally:
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)


def _body(o: argparse.Namespace, place: int, user: str, length: int) -> dict[str, Any]:
    """About `length` tokens that no other prompt begins with."""
    words = random.Random(f"{user} {place} {time.time_ns()}").choices(WORDS, k=length)
    return {
        "model": "model",
        "prompt": " ".join(words),
        "max_tokens": o.output_len,
        "ignore_eos": True,
        "temperature": 0,
        "user": user,
    }


def _report(found: Times, o: argparse.Namespace) -> None:
    share = statistics.median(found[CASES[1]])
    rows = [
        [
            case,
            f"{1e3 * statistics.median(times):.0f}",
            f"{1e3 * max(times):.0f}",
            f"{statistics.median(times) / share:.2f}",
        ]
        for case, times in found.items()
    ]
    print(table(["light tenant", "TTFT p50 ms", "worst ms", "half the machine = 1"], rows))
    out = o.out / "fairness.json"
    facts = {key: str(value) for key, value in vars(o).items() if key != "out"}
    write_json(out, found, options=facts | {"model": Path(o.model).stem})
    _plot(out.with_suffix(".svg"), found, share)
    print(f"written: {out} and its plot", file=sys.stderr)


def _plot(path: Path, found: Times, share: float) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3))
    names = list(found)[::-1]
    for place, name in enumerate(names):
        times = [1e3 * seconds for seconds in found[name]]
        axes.barh(place, statistics.median(times), color="#7a9cc6")
        axes.plot(times, [place] * len(times), "|", color="black")
    axes.axvline(1e3 * share, color="#b04a3a", linestyle="--", label="half the machine")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("time to first token of the light tenant, ms (bar: median)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--requests", type=int, default=6, help="of the light tenant, in each case")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between them")
    parser.add_argument("--input-len", type=int, default=512, help="its prompts, in words")
    parser.add_argument("--output-len", type=int, default=16)
    parser.add_argument("--flood", type=int, default=32, help="requests of the flood in flight")
    parser.add_argument("--flood-input-len", type=int, default=128)
    parser.add_argument("--lead", type=float, default=1.0, help="seconds the flood has alone")
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""`python -m benchmarks.serving smollm2`: servers under the same load, in one command.

A closed loop of streaming clients; beside Octavo's server also Octavo's engine alone at the same
number of streams, so that the cost of the service shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.report import table, write_json
from benchmarks.serving.plot import write_plot
from benchmarks.serving.servers import SERVERS, Server, octavo

ENGINE = "Octavo, engine alone"
NUMBERS = ("output tok/s", "TTFT p50 ms", "TTFT p99 ms", "inter-token p50 ms", "p99 ms")
FACTS = ("model", "peers", "concurrency", "rounds", "input_len", "output_len", "threads")
Runs = dict[str, list[dict[str, float]]]


def main() -> None:
    options = _options()
    from octavo.weights import resolve

    model = resolve(options.model)
    servers = [octavo(model, options)]
    servers += filter(None, (SERVERS[name](model, options) for name in options.peers))
    runs: Runs = {}
    with ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.stop)
        for repetition in range(options.repeat):
            print(f"repetition {repetition + 1} of {options.repeat}", file=sys.stderr)
            runs.setdefault(ENGINE, []).append(_engine(model, options))
            for server in servers:
                runs.setdefault(server.name, []).append(_load(server, options, repetition))
    _report(runs, options, model)


def _engine(model: Path, o: argparse.Namespace) -> dict[str, float]:
    """`octavo bench engine`: all requests at once, in one process, without HTTP."""
    sizes = ["--input-len", o.input_len, "--output-len", o.output_len, "--repeat", 1]
    load = ["--concurrency", o.concurrency, "--threads", o.threads]
    report = _bench(["engine", model, *sizes, *load])
    (result,) = report["results"]
    times = [result[name]["median"] * 1e3 for name in _ENGINE_TIMES]
    return dict(zip(NUMBERS, [result["output_tps"]["median"], *times], strict=True))


_ENGINE_TIMES = ("ttft_p50_s", "ttft_p99_s", "inter_token_p50_s", "inter_token_p99_s")


def _load(server: Server, o: argparse.Namespace, repetition: int) -> dict[str, float]:
    """`octavo bench serve` against one server; fresh prompts in every repetition."""
    where = ["--url", server.url, "--model", "model", "--endpoint", "completions"]
    sizes = ["--input-len", o.input_len, "--output-len", o.output_len, "--tokenizer", o.model]
    load = ["--concurrency", o.concurrency, "--requests", o.rounds * o.concurrency]
    found = _bench(["serve", *where, *sizes, *load, "--seed", repetition])
    if found["errors"]:
        raise SystemExit(f"{server.name}: {found['errors']}")
    times = (found["ttft"], found["inter_token"])
    shown = [t[p] * 1e3 for t in times for p in ("p50", "p99")]
    return dict(zip(NUMBERS, [found["output_tps"], *shown], strict=True))


def _bench(arguments: list[Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "octavo", "bench", *map(str, arguments)]
        done = subprocess.run(
            [*command, "--json", str(out)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nfailed:\n{done.stderr[-2000:]}")
        report: dict[str, Any] = json.loads(out.read_text())
    return report


def _report(runs: Runs, options: argparse.Namespace, model: Path) -> None:
    rows = []
    for name, found in runs.items():
        ratios = [a[NUMBERS[0]] / b[NUMBERS[0]] for a, b in zip(runs["Octavo"], found, strict=True)]
        rows.append([name, *(_spread([r[n] for r in found]) for n in NUMBERS), _ratio(ratios)])
    print(table(["server", *NUMBERS, "Octavo's tok/s over it"], rows))
    out = options.out / f"serving-{model.stem}.json"
    facts = {key: getattr(options, key) for key in FACTS}
    write_json(out, runs, options=facts)
    write_plot(
        out.with_suffix(".svg"), runs, NUMBERS[:2], f"{options.model}, {_load_name(options)}"
    )
    print(f"written: {out} and its plot", file=sys.stderr)


def _load_name(o: argparse.Namespace) -> str:
    return f"{o.concurrency} streaming clients, {o.input_len} in, {o.output_len} out"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def _ratio(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument(
        "--peers", type=lambda s: s.split(","), default=["llama.cpp"], help=", ".join(SERVERS)
    )
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4, help="requests of each client")
    parser.add_argument("--input-len", type=int, default=128, help="tokens")
    parser.add_argument("--output-len", type=int, default=64, help="tokens")
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-bin", type=Path, help="a folder with llama-server built already")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vLLM installed")
    parser.add_argument("--cache", type=Path, default=Path("build/peers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    for name in options.peers:
        if name not in SERVERS:
            parser.error(f"--peers {name}: expected some of {', '.join(SERVERS)}")
    return options


if __name__ == "__main__":
    main()

"""What sampling costs: the sampler's region as a share of a decode step of one stream.

Each setting decodes the same prompts; the settings take turns, step after step of a run, and of
each the median counts. The demo model with the largest vocabulary (262,144) is the default.

    python -m benchmarks.sampling gemma3-270m --json sampling.json
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import table, write_json

from octavo.backends.cpu.executable import CpuExecutable
from octavo.decoding import SamplingParams
from octavo.engine import Engine, EngineOptions, Request
from octavo.engine.loading import load

SETTINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature 0.8": SamplingParams(temperature=0.8, seed=1),
    "top-k 40": SamplingParams(temperature=0.8, top_k=40, seed=1),
    "top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95, seed=1),
    "min-p 0.05": SamplingParams(temperature=0.8, min_p=0.05, seed=1),
    "all three": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1),
    "top-p 0.99, temperature 2": SamplingParams(temperature=2.0, top_p=0.99, seed=1),
    "top-k 40, penalties": SamplingParams(
        temperature=0.8, top_k=40, repetition_penalty=1.1, frequency_penalty=0.1, seed=1
    ),
}
PROMPT, OUTPUT = 64, 32


@dataclass(frozen=True)
class Sampling:
    """Median seconds of the sampler's region and of the engine's step."""

    name: str
    sample_s: float
    step_s: float

    @property
    def share(self) -> float:
        return self.sample_s / self.step_s


def decode(
    engine: Engine, executable: CpuExecutable, params: SamplingParams, number: int
) -> list[tuple[float, float]]:
    """(sampler, step) seconds of each decode step of one request."""
    ids = random.Random(number).choices(range(1000, 30000), k=PROMPT)
    settings = SamplingParams(
        **{
            **{k: getattr(params, k) for k in ("temperature", "top_k", "top_p", "min_p", "seed")},
            "repetition_penalty": params.repetition_penalty,
            "frequency_penalty": params.frequency_penalty,
        },
        max_tokens=OUTPUT,
        ignore_eos=True,
    )
    now = time.monotonic()
    engine.add_request(
        Request(f"sampling-{number}", ids, settings, arrival_s=now, use_prefix_cache=False)
    )
    times = []
    while engine.has_work():
        with executable.profile() as regions:
            start = time.perf_counter()
            engine.step()
            step = time.perf_counter() - start
        times.append((sum(s for name, s in regions if name == "sample"), step))
    return times[1:]  # the first step is the prompt's


def measure(engine: Engine, executable: CpuExecutable, repeat: int) -> list[Sampling]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in SETTINGS}
    number = 0
    for _ in range(repeat):
        for name, params in SETTINGS.items():
            times[name] += decode(engine, executable, params, number)
            number += 1
    return [
        Sampling(name, *(statistics.median(column) for column in zip(*steps, strict=True)))
        for name, steps in times.items()
    ]


def report(results: list[Sampling]) -> str:
    rows = [
        [r.name, f"{r.sample_s * 1e6:.0f} us", f"{r.step_s * 1e3:.2f} ms", f"{r.share:.1%}"]
        for r in results
    ]
    return table(["setting", "sampling", "a step", "share"], rows)


def main() -> None:
    options = _options()
    settings = EngineOptions(options.model, num_threads=options.threads, num_kv_blocks=64)
    executable, tokenizer, _, plan, *_ = load(settings)
    assert isinstance(executable, CpuExecutable)
    engine = Engine(executable, tokenizer, settings, plan)
    decode(engine, executable, SETTINGS["greedy"], -1)  # warms up
    results = measure(engine, executable, options.repeat)
    print(f"{options.model}: a vocabulary of {executable.config.vocab_size:,}\n")
    print(report(results))
    engine.close()
    if options.json:
        values = [{**asdict(r), "share": r.share} for r in results]
        write_json(options.json, values, model=options.model, threads=options.threads)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling", description=__doc__)
    parser.add_argument("model", nargs="?", default="gemma3-270m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="requests of each setting, in turn")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()

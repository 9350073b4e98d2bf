"""Where the time of a step goes: region by region inside the native program, and outside it.

Prefill of 512 tokens and decode of 1, 8 and 32 streams, through the engine. "around" is what the
native call takes beyond its regions (checks, sharing out the work), "Python" what
the step takes beyond the native call. Then the cost of a decode step with M = 1 to 4 streams, how
fast a step of one stream reads the weights, and attention keys and values at 4096 tokens,
both against the memory's own speed.

    python -m benchmarks.step qwen2.5-coder-1.5b --json step.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.decode_read import measure_decode_read, report_decode
from benchmarks.kv_read import CONTEXT, measure_kv_read, report_kv
from benchmarks.load import add_requests, steps, until_all_decode
from benchmarks.report import table, write_json

from octavo.backends.base import Executable, Floats, Ints, Step
from octavo.backends.cpu.executable import CpuExecutable
from octavo.cache import GROUP_BLOCKS
from octavo.decoding.batch import SampleResult, SamplingBatch
from octavo.engine import Engine, EngineOptions
from octavo.engine.loading import load

PROMPT, OUTPUT = 128, 33  # of the decode phases
MOST_ROWS = 4  # of the comparison of M = 1, 2, ... rows
KINDS = {
    "linear": "q, k, v, o, down",
    "head": "LM head",
    "gated": "gate, up",
    "heads": "rotation, KV write",
}


@dataclass
class Phase:
    """The mean step of one load, in seconds. regions: by kind, barriers included."""

    name: str
    num_steps: int
    step_s: float
    native_s: float
    regions: dict[str, float] = field(default_factory=dict)

    @property
    def around_s(self) -> float:
        return self.native_s - sum(self.regions.values())

    @property
    def python_s(self) -> float:
        return self.step_s - self.native_s

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "around_s": self.around_s, "python_s": self.python_s}


class Clocked(Executable):
    """An executable that adds up the seconds of its steps."""

    def __init__(self, inner: CpuExecutable) -> None:
        self.inner = inner
        self.seconds: list[float] = []
        self.config = inner.config
        self.block_size = inner.block_size
        self.plan = inner.plan
        self.prompts_differ = inner.prompts_differ

    def step(self, step: Step, sampling: SamplingBatch) -> SampleResult:
        start = time.perf_counter()
        result = self.inner.step(step, sampling)
        self.seconds.append(time.perf_counter() - start)
        return result

    def forward(self, step: Step) -> Floats:
        return self.inner.forward(step)

    def allocate_kv(self, num_blocks: int) -> None:
        self.inner.allocate_kv(num_blocks)

    def copy_blocks(self, pairs: Ints) -> None:
        self.inner.copy_blocks(pairs)

    def close(self) -> None:
        self.inner.close()


def by_kind(regions: Sequence[tuple[str, float]], num_steps: int) -> dict[str, float]:
    """Seconds of a mean step, largest first. The last product is the LM head."""
    last = max((i for i, (name, _) in enumerate(regions) if name == "linear"), default=-1)
    sums: dict[str, float] = {}
    for i, (name, seconds) in enumerate(regions):
        kind = KINDS.get("head" if i == last else name, name)
        sums[kind] = sums.get(kind, 0.0) + seconds / num_steps
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def measure_phase(engine: Engine, clocked: Clocked, name: str) -> Phase:
    """All steps of what is queued."""
    clocked.seconds.clear()
    total = []
    with clocked.inner.profile() as regions:
        start = time.perf_counter()
        for _ in steps(engine):
            now = time.perf_counter()
            total.append(now - start)
            start = now
    count = len(total)
    return Phase(
        name, count, sum(total) / count, sum(clocked.seconds) / count, by_kind(regions, count)
    )


def measure_phases(engine: Engine, clocked: Clocked, repeat: int) -> list[Phase]:
    """Of each load the run with the median step."""
    runs: dict[str, list[Phase]] = {}
    for _ in range(repeat):
        add_requests(engine, 1, 512, 1)
        runs.setdefault("prefill 512", []).append(measure_phase(engine, clocked, "prefill 512"))
        for streams in (1, 8, 32):
            name = f"decode x{streams}"
            add_requests(engine, streams, PROMPT, OUTPUT)
            until_all_decode(engine)
            runs.setdefault(name, []).append(measure_phase(engine, clocked, name))
    return [sorted(r, key=lambda p: p.step_s)[len(r) // 2] for r in runs.values()]


def measure_rows(engine: Engine, clocked: Clocked, repeat: int) -> list[float]:
    """Median seconds of a native decode step with 1, 2, ... streams, in turn."""
    times: list[list[float]] = [[] for _ in range(MOST_ROWS)]
    for _ in range(repeat):
        for rows in range(1, MOST_ROWS + 1):
            add_requests(engine, rows, 16, 17)
            until_all_decode(engine)
            clocked.seconds.clear()
            for _ in steps(engine):
                pass
            times[rows - 1] += clocked.seconds
    return [statistics.median(t) for t in times]


def report(phases: Sequence[Phase]) -> str:
    """One column a load: milliseconds and percent of the step."""
    kinds = sorted(
        {kind for p in phases for kind in p.regions},
        key=lambda kind: -max(p.regions.get(kind, 0.0) / p.step_s for p in phases),
    )
    rows = [[kind, *(_part(p.regions.get(kind, 0.0), p) for p in phases)] for kind in kinds]
    rows.append(["around", *(_part(p.around_s, p) for p in phases)])
    rows.append(["Python", *(_part(p.python_s, p) for p in phases)])
    rows.append(["step", *(f"{p.step_s * 1e3:.2f} ms" for p in phases)])
    return table(["", *(p.name for p in phases)], rows)


def report_rows(seconds: Sequence[float]) -> str:
    cells = [
        [f"M = {i + 1}", f"{s * 1e3:.2f} ms", f"{s / seconds[0]:.2f}"]
        for i, s in enumerate(seconds)
    ]
    return table(["decode", "native step", "of M = 1"], cells)


def main() -> None:
    options = _options()
    streams = options.kv_streams
    blocks = max(256, max(streams) * CONTEXT // 32 + GROUP_BLOCKS)
    settings = EngineOptions(
        options.model,
        num_threads=options.threads,
        num_kv_blocks=blocks,
        kv_dtype=options.kv_dtype,
        products=options.products,
    )
    executable, tokenizer, _, plan, *_ = load(settings)
    assert isinstance(executable, CpuExecutable)
    clocked = Clocked(executable)
    engine = Engine(clocked, tokenizer, settings, plan)
    add_requests(engine, 1, 64, 4)
    for _ in steps(engine):  # warms up
        pass
    phases = measure_phases(engine, clocked, options.repeat)
    print(report(phases), end="\n\n", flush=True)
    rows = measure_rows(engine, clocked, options.repeat)
    print(report_rows(rows), end="\n\n", flush=True)
    decode = measure_decode_read(
        engine, clocked.inner, clocked.seconds, options.threads, 2 * options.repeat
    )
    print(report_decode(decode), end="\n\n", flush=True)
    reads = []
    for n in streams:
        reads.append(measure_kv_read(clocked.inner, n, options.threads, blocks))
    print(report_kv(reads))
    engine.close()
    if options.json:
        results = {
            "phases": [p.as_dict() for p in phases],
            "rows_s": rows,
            "decode_read": {**asdict(decode), "share": decode.share},
            "kv_reads": [{**asdict(r), "share": r.share} for r in reads],
        }
        write_json(options.json, results, model=options.model, threads=options.threads)


def _part(seconds: float, phase: Phase) -> str:
    return f"{seconds * 1e3:.2f} ms {100 * seconds / phase.step_s:3.0f} %"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="of each load, in turn")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--products", default="auto", help="int8, bf16 or mixed")
    parser.add_argument("--kv-streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""How near the matrix products come to the machine's limits.

Times every product shape of the demo models for several numbers of rows M, next to the limits that
the same run measures: the rate of multiply-adds of int8 by weights of so many bits in registers
("peak"), and the speed of reading memory on huge pages ("read"). With few rows a product should run
at the speed of reading, with many at a large share of peak. Weights come from memory: each product
takes the next of many copies. Small matrices with few rows show more than the threads' barrier
costs, too.

    python -m benchmarks.kernels --isa avx512 avxvnni avx2 --json kernels.json --plot

--isa: each set is measured in a process of its own, beside its own peak; the best one by default.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.memory_speed import read_speed
from benchmarks.report import table, write_json
from benchmarks.shapes import BITS, SHAPES, TYPE_IDS, Shape

ROWS = [1, 2, 3, 4, 8, 12, 32, 128, 512]


@dataclass(frozen=True)
class Result:
    """One shape at one number of rows. seconds: the median, or the best; shares: of the limits."""

    model: str
    name: str
    type: str
    n: int
    k: int
    rows: int
    seconds: float
    operations_per_s: float
    bytes_per_s: float
    share_of_peak: float
    share_of_read: float


@dataclass(frozen=True)
class Run:
    """One instruction set. int8_peak: operations/s by bits of a weight; read_speed: bytes/s."""

    isa: str
    threads: int
    int8_peak: dict[str, float]
    read_speed: float
    results: list[Result]


def measure(options: argparse.Namespace) -> Run:
    """All shapes on the instruction set that this process has."""
    from octavo import _native

    threads = options.threads
    peaks = {bits: _native.measure_int8_peak(threads, bits) for bits in sorted(set(BITS.values()))}
    read = read_speed(threads)
    results = []
    for shape in SHAPES:
        if options.model in (None, shape.model):
            peak = peaks[BITS[shape.type]]
            results += [_measure(shape, rows, peak, read, options) for rows in options.rows]
    by_name = {str(bits): peak for bits, peak in peaks.items()}
    return Run(_native.active_isa(), threads, by_name, read, results)


def _measure(
    shape: Shape, rows: int, peak: float, read: float, options: argparse.Namespace
) -> Result:
    from octavo import _native

    kind = TYPE_IDS[shape.type]
    operations = 2 * rows * shape.n * shape.k
    size = _native.packed_bytes(kind, shape.n, shape.k)
    guess = max(operations / (peak / 2), size / read)
    repeats = max(5, min(200, int(options.seconds / guess)))
    times = _native.measure_linear(
        kind, shape.n, shape.k, rows, options.threads, options.footprint_mb << 20, repeats
    )
    seconds = min(times) if options.best else statistics.median(times)
    rates = operations / seconds, size / seconds
    return Result(*shape, rows, seconds, *rates, rates[0] / peak, rates[1] / read)


def measure_apart(isa: str | None, options: argparse.Namespace) -> Run:
    """The same in a process whose kernels are of `isa`; sys.exit if this machine has none such."""
    environment = {**os.environ, "OCTAVO_ISA": isa} if isa else dict(os.environ)
    command = [sys.executable, "-m", "benchmarks.kernels", "--child", *sys.argv[1:]]
    child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != 0:
        sys.exit(f"kernels: measuring {isa or 'the best instruction set'} failed, see above")
    found = json.loads(child.stdout)
    run = Run(**{**found, "results": [Result(**r) for r in found["results"]]})
    if isa and run.isa != isa:
        sys.exit(f"kernels: got --isa {isa}; expected one that this machine has, as {run.isa}")
    return run


def report(run: Run) -> str:
    """A line a shape; a column a number of rows: % of peak / % of read speed."""
    peaks = ", ".join(f"{bits} bits {peak / 1e9:.0f}" for bits, peak in run.int8_peak.items())
    head = f"{run.isa}, {run.threads} threads. int8 peak, GOP/s: {peaks}"
    rows = sorted({r.rows for r in run.results})
    lines: dict[str, list[str]] = {}
    for r in run.results:
        cell = f"{100 * r.share_of_peak:.0f} / {100 * r.share_of_read:.0f}"
        lines.setdefault(f"{r.model} {r.name}, {r.type}, {r.n} x {r.k}", []).append(cell)
    cells = [[name, *shares] for name, shares in lines.items()]
    body = table(["% of peak / % of read speed", *(f"M = {m}" for m in rows)], cells)
    return f"{head}; read {run.read_speed / 1e9:.1f} GB/s\n\n{body}\n"


def plot(path: Path, runs: list[Run], title: str) -> None:
    """Shares of peak and of read speed over M: a column an instruction set, a line a type."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2,
        len(runs),
        figsize=(1.5 + 3.2 * len(runs), 5),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for column, run in enumerate(runs):
        for row, share in enumerate(("share_of_peak", "share_of_read")):
            for kind in TYPE_IDS:
                points = _median_by_rows(run, kind, share)
                axes[row][column].semilogx(*zip(*points, strict=True), marker=".", label=kind)
            axes[row][column].grid(alpha=0.3)
        axes[0][column].set_title(run.isa, fontsize=10)
        axes[1][column].set_xlabel("rows M")
    axes[0][0].set_ylabel("% of int8 peak")
    axes[1][0].set_ylabel("% of read speed")
    axes[0][0].set_ylim(0, 130)
    axes[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _median_by_rows(run: Run, kind: str, share: str) -> list[tuple[int, float]]:
    """(M, %) of a type; the median of its shapes."""
    cases = [r for r in run.results if r.type == kind]
    return [
        (m, 100 * statistics.median(getattr(r, share) for r in cases if r.rows == m))
        for m in sorted({r.rows for r in cases})
    ] or [(1, float("nan"))]


def main() -> None:
    options = _options()
    if options.child:
        print(json.dumps(asdict(measure(options))))
        return
    from octavo.bench import describe_machine

    runs = []
    for isa in options.isa or [None]:
        runs.append(measure_apart(isa, options))
        print(report(runs[-1]), flush=True)
    if options.json:
        write_json(options.json, [asdict(run) for run in runs])
    if options.plot:
        title = f"{describe_machine().cpu}, {options.threads} threads, each of its own limits"
        plot(options.out / "kernels.svg", runs, title)
        print(f"written: {options.out / 'kernels.svg'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--isa", nargs="+", help="avx512, avxvnni, avx2, neon, scalar")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", choices=sorted({s.model for s in SHAPES}))
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--seconds", type=float, default=0.1, help="aimed at per case")
    parser.add_argument("--best", action="store_true", help="of each case's runs, not the median")
    parser.add_argument("--footprint-mb", type=int, default=128, help="more than the last cache")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--plot", action="store_true", help="write kernels.svg")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

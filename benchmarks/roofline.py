"""What this machine can do at most: the limits every other number is held against.

Reading memory on pages of 2 MB and 4 kB; int8, bf16 and float32 multiply-adds in registers, with
the instruction set in use (OCTAVO_ISA lowers it); a barrier of the thread pool, an empty region of
a step (threads claim its items and see it closed) and an empty job.

    python -m benchmarks.roofline --threads 1 2 --json roofline.json --plot
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.memory_speed import read_speed
from benchmarks.report import table, write_json

OTHER_BITS = (5, 6, 8)
BITS_A_WEIGHT = 4.5  # Q4_K: 4 bits and an eighth of a 4-byte pair of scales


@dataclass(frozen=True)
class Roof:
    """With `threads` threads: bytes/s, operations/s (a multiply-add is two), seconds.

    bf16_peak: 0 where the instruction set in use has no bf16 dot product. int8_peak: with weights
    of 4 bits; int8_peaks: with others, which differ where no instruction sums products of bytes.
    """

    threads: int
    read_speed: float
    read_speed_small_pages: float
    int8_peak: float
    bf16_peak: float
    f32_peak: float
    barrier_s: float
    region_s: float
    job_s: float
    int8_peaks: dict[int, float] = field(default_factory=dict)


def measure(threads: int) -> Roof:
    """All limits, the best of several short runs each: a shared machine disturbs some."""
    from octavo import _native

    return Roof(
        threads,
        read_speed(threads),
        read_speed(threads, huge_pages=False),
        _native.measure_int8_peak(threads),
        _native.measure_bf16_peak(threads),
        _native.measure_f32_peak(threads),
        min(_native.measure_barrier(threads)),
        # The best would be one thread doing it all.
        statistics.median(_native.measure_region(threads)),
        min(_native.measure_job(threads)),
        {bits: _native.measure_int8_peak(threads, bits) for bits in OTHER_BITS},
    )


def report(roofs: list[Roof]) -> str:
    """One column a number of threads."""
    rows = [
        ("read, 2 MB pages, GB/s", [f"{r.read_speed / 1e9:.1f}" for r in roofs]),
        ("read, 4 kB pages, GB/s", [f"{r.read_speed_small_pages / 1e9:.1f}" for r in roofs]),
        ("int8 peak, GOP/s", [_rate(r.int8_peak) for r in roofs]),
        *_other_peaks(roofs),
        ("bf16 peak, GFLOP/s", [_rate(r.bf16_peak) for r in roofs]),
        ("float32 peak, GFLOP/s", [_rate(r.f32_peak) for r in roofs]),
        ("barrier, ns", [f"{r.barrier_s * 1e9:.0f}" for r in roofs]),
        ("empty region, ns", [f"{r.region_s * 1e9:.0f}" for r in roofs]),
        ("empty job, ns", [f"{r.job_s * 1e9:.0f}" for r in roofs]),
    ]
    head = ["threads", *(str(r.threads) for r in roofs)]
    return table(head, [[name, *cells] for name, cells in rows])


def intensity(rows: int) -> float:
    """Operations for each byte of 4-bit weights when a matrix meets `rows` rows."""
    return 2 * rows * 8 / BITS_A_WEIGHT


def plot(path: Path, roof: Roof, title: str) -> None:
    """Reachable rate over operations per byte; the dotted lines are M rows of activations."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    peaks = {"int8": roof.int8_peak, "bf16": roof.bf16_peak, "float32": roof.f32_peak}
    reach = [intensity(1) / 4, intensity(1024)]
    for name, peak in peaks.items():
        if peak:
            ridge = peak / roof.read_speed
            xs = sorted([reach[0], min(max(ridge, reach[0]), reach[1]), reach[1]])
            axes.loglog(xs, [min(x * roof.read_speed, peak) / 1e9 for x in xs], label=name)
    for rows in (1, 4, 32, 128, 512):
        axes.axvline(intensity(rows), color="#999999", linestyle=":", linewidth=1)
        axes.annotate(
            f"M={rows}",
            (intensity(rows), 1),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
        )
    axes.set_xlabel("operations per byte of 4-bit weights read")
    axes.set_ylabel("billion operations/s")
    axes.set_title(title, fontsize=10, pad=16)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    options = _options()
    from octavo import _native
    from octavo.bench import describe_machine

    machine = describe_machine()
    print(f"{machine.cpu}, {_native.active_isa()}\n")
    roofs = [measure(n) for n in options.threads or sorted({1, machine.threads})]
    print(report(roofs))
    if options.json:
        write_json(options.json, [asdict(r) for r in roofs], isa=_native.active_isa())
    if options.plot:
        title = f"{machine.cpu}, {machine.isa}, {roofs[-1].threads} threads"
        plot(options.out / "roofline.svg", roofs[-1], title)
        print(f"written: {options.out / 'roofline.svg'}")


def _other_peaks(roofs: list[Roof]) -> list[tuple[str, list[str]]]:
    """Lines of the numbers of bits whose peak is not that of 4."""
    return [
        (f"int8 by {bits} bits, GOP/s", [_rate(r.int8_peaks[bits]) for r in roofs])
        for bits in OTHER_BITS
        if any(r.int8_peaks.get(bits, r.int8_peak) < 0.97 * r.int8_peak for r in roofs)
    ]


def _rate(value: float) -> str:
    return f"{value / 1e9:.0f}" if value else "none"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", help="default: 1 and all there are")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--plot", action="store_true", help="write roofline.svg")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

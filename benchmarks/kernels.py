"""How near the matrix products come to the machine's limits.

Times every product shape of the demo models for several numbers of rows M, next to the limits
that the same run measures: the int8 rate of multiply-adds in registers ("peak"), and the speed of
reading memory on huge pages ("read"). With few rows a product should run at the speed of reading,
with many at a large share of peak. Weights come from memory: each product takes the next of many
copies.

    python benchmarks/kernels.py --threads 2 --json kernels.json

OCTAVO_ISA=avx2 (or scalar) measures the lesser kernels; "peak" then is that instruction set's own.
"""

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import NamedTuple

from octavo import _native

TYPES = {"Q4_1": 3, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14}


class Shape(NamedTuple):
    """One weight matrix of a demo model: [n, k] of a GGUF type."""

    model: str
    name: str
    type: str
    n: int
    k: int


SHAPES = [
    Shape("smollm2", "q, o", "Q4_1", 576, 576),
    Shape("smollm2", "gate+up", "Q4_1", 3072, 576),
    Shape("smollm2", "down", "Q4_1", 576, 1536),
    Shape("smollm2", "head", "Q8_0", 49152, 576),
    Shape("gemma3", "q", "Q5_0", 1024, 640),
    Shape("gemma3", "gate+up", "Q5_0", 4096, 640),
    Shape("gemma3", "down", "Q4_K", 640, 2048),
    Shape("gemma3", "head", "Q8_0", 262144, 640),
    Shape("qwen", "q, o", "Q4_K", 1536, 1536),
    Shape("qwen", "gate+up", "Q4_K", 17920, 1536),
    Shape("qwen", "down", "Q4_K", 1536, 8960),
    Shape("qwen", "down", "Q6_K", 1536, 8960),
    Shape("qwen", "head", "Q6_K", 151936, 1536),
]


class Limits(NamedTuple):
    """What the machine can do with the threads in use: operations/s and bytes/s."""

    int8_peak: float
    read_speed: float


class Result(NamedTuple):
    """One shape at one number of rows; `seconds` is the median."""

    shape: Shape
    rows: int
    seconds: float
    operations_per_s: float
    bytes_per_s: float
    share_of_peak: float
    share_of_read: float


def measure(shape: Shape, rows: int, limits: Limits, args: argparse.Namespace) -> Result:
    kind = TYPES[shape.type]
    operations = 2 * rows * shape.n * shape.k
    size = _native.packed_bytes(kind, shape.n, shape.k)
    guess = max(operations / (limits.int8_peak / 2), size / limits.read_speed)
    repeats = max(5, min(200, int(args.seconds / guess)))
    times = _native.measure_linear(
        kind, shape.n, shape.k, rows, args.threads, args.footprint_mb << 20, repeats
    )
    seconds = statistics.median(times)
    rates = operations / seconds, size / seconds
    shares = rates[0] / limits.int8_peak, rates[1] / limits.read_speed
    return Result(shape, rows, seconds, *rates, *shares)


def report(limits: Limits, args: argparse.Namespace) -> list[Result]:
    """Prints the table as it goes: a line a shape, '% of peak / % of read' a column."""
    peak, read = limits.int8_peak / 1e9, limits.read_speed / 1e9
    print(f"{_native.active_isa()}, {args.threads} threads: ", end="")
    print(f"int8 peak {peak:.0f} GOP/s, read {read:.1f} GB/s")
    print("each column: M, then % of int8 peak / % of read speed\n")
    print(f"{'model':8} {'matrix':8} {'type':5} {'N x K':>13}", end="")
    print("".join(f"{f'M={rows}':>11}" for rows in args.rows))
    results = []
    for shape in SHAPES:
        if args.model and shape.model != args.model:
            continue
        print(f"{shape.model:8} {shape.name:8} {shape.type:5}", end="")
        print(f" {f'{shape.n} x {shape.k}':>13}", end="", flush=True)
        for rows in args.rows:
            result = measure(shape, rows, limits, args)
            results.append(result)
            both = f"{100 * result.share_of_peak:.0f}/{100 * result.share_of_read:.0f}"
            print(f"{both:>11}", end="", flush=True)
        print()
    return results


def as_json(limits: Limits, results: list[Result], args: argparse.Namespace) -> str:
    cases = [{**r._asdict(), "shape": r.shape._asdict()} for r in results]
    head = {"isa": _native.active_isa(), "threads": args.threads, **limits._asdict()}
    return json.dumps({**head, "results": cases}, indent=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", choices=sorted({s.model for s in SHAPES}))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 12, 32, 128, 512])
    parser.add_argument("--seconds", type=float, default=0.2, help="aimed at per case")
    parser.add_argument("--footprint-mb", type=int, default=128, help="more than the last cache")
    parser.add_argument("--json", type=Path, help="also write the results here")
    args = parser.parse_args()
    limits = Limits(
        _native.measure_int8_peak(args.threads),
        _native.measure_read_speed(256 << 20, args.threads),
    )
    results = report(limits, args)
    if args.json:
        args.json.write_text(as_json(limits, results, args))


if __name__ == "__main__":
    main()

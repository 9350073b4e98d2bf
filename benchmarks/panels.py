"""What weights of few bits gain: bytes and time of one product, beside the same in bfloat16.

    python -m benchmarks.panels --types E4M3 NF4 --rows 1 8 128 --isa amx avx2

For every type its bits a weight in memory, and for each number of rows M the time and what that is
against bfloat16. Weights come from memory: each product takes the next of many copies.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import table, write_json

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "MXFP4"]
"""Besides those that quantized safetensors become."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each type by rows, the best of some runs, on the set that this process has."""
    from octavo import _native
    from octavo.weights.scheme import MADE_SCHEMES, SCHEMES

    n, k = options.shape
    known = SCHEMES | MADE_SCHEMES
    names = ["BF16", *(options.types or [*MADE_SCHEMES, *TYPES])]
    ids = {name: known[name].ggml_type for name in names}
    bits = {name: 8 * _native.packed_bytes(kind, n, k) / (n * k) for name, kind in ids.items()}
    seconds = {
        name: [_best(kind, rows, options) for rows in options.rows] for name, kind in ids.items()
    }
    return {"isa": _native.active_isa(), "shape": [n, k], "bits": bits, "seconds": seconds}


def _best(kind: int, rows: int, options: argparse.Namespace) -> float:
    from octavo import _native

    n, k = options.shape
    footprint = options.footprint_mb << 20
    repeats = max(3, options.repeats // rows)
    return min(_native.measure_linear(kind, n, k, rows, options.threads, footprint, repeats))


def report(run: dict[str, Any], rows: list[int]) -> str:
    """A line a type: bits, and for each number of rows microseconds and times bfloat16's speed."""
    base = run["seconds"]["BF16"]
    cells = [
        [name, f"{run['bits'][name]:.2f}"]
        + [f"{1e6 * s:.0f} us, {b / s:.1f}x" for s, b in zip(found, base, strict=True)]
        for name, found in run["seconds"].items()
    ]
    n, k = run["shape"]
    head = f"{run['isa']}, {n} x {k}; times the speed of BF16"
    return f"{head}\n\n{table(['type', 'bits', *(f'M = {m}' for m in rows)], cells)}\n"


def _apart(isa: str | None) -> dict[str, Any]:
    """The same in a process whose kernels are of `isa`."""
    environment = {**os.environ, "OCTAVO_ISA": isa} if isa else dict(os.environ)
    command = [sys.executable, "-m", "benchmarks.panels", "--child", *sys.argv[1:]]
    output = subprocess.check_output(command, env=environment, text=True)
    found: dict[str, Any] = json.loads(output)
    if isa and found["isa"] != isa:
        sys.exit(f"panels: got --isa {isa}; this machine's best set is {found['isa']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panels", description=__doc__)
    parser.add_argument("--types", nargs="+", help="as docs/quantized.md and docs/formats.md name")
    parser.add_argument("--isa", nargs="+", help="amx, avx512, avxvnni, avx2, neon, scalar")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 128])
    parser.add_argument("--shape", type=int, nargs=2, default=[2048, 2048], help="N and K")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=30, help="with one row; with more fewer")
    parser.add_argument("--footprint-mb", type=int, default=128, help="more than the last cache")
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options)))
        return
    runs = [_apart(isa) for isa in options.isa or [None]]
    print("\n".join(report(run, options.rows) for run in runs))
    if options.json:
        write_json(options.json, runs)


if __name__ == "__main__":
    main()

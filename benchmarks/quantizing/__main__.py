"""`python -m benchmarks.quantizing MODEL`: what quantizing costs, by Octavo and by llama.cpp.

All start from the same file of 16-bit weights and are run by the same engine against the same
float32 reference, so that only the weights differ. The models at hand are quantized files: their
numbers lie on a grid, and who uses that grid again finds them again. So by default each number is
first moved within half a step of its block of 32, as far as rounding to four bits may have moved
it; the model that results is the reference. --as-stored leaves the numbers on their grid.

Files, the reference and what is found go to --cache: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.llama_cpp import VERSION
from benchmarks.quantizing.judge import CONTEXT, judge, reference
from benchmarks.quantizing.report import rows_of, table, write
from benchmarks.quantizing.start import write_start

from octavo.quantize import Options, quantize
from octavo.records import replace
from octavo.weights import resolve


def main() -> None:
    options = _options()
    from octavo import __version__
    from octavo.bench import describe_machine

    folder = options.cache / options.model
    folder.mkdir(parents=True, exist_ok=True)
    start = folder / ("stored.gguf" if options.as_stored else "moved.gguf")
    if not start.exists():
        write_start(resolve(options.model), start, move=not options.as_stored)
    files = dict(_files(start, options))
    against = reference(start, options.reference, options.tokens)
    rows = rows_of({name: judge(name, path, against) for name, path in files.items()})
    print(table(rows))
    facts = {
        "octavo": __version__,
        "llama_cpp": VERSION,
        "machine": asdict(describe_machine()),
        "model": options.model,
        "start": "as stored" if options.as_stored else "moved within half a step",
        "calibration_tokens": options.calibration_tokens,
        "evaluation_tokens": options.tokens,
        "context": CONTEXT,
    }
    out = options.out / f"quantizing-{options.model}{'-stored' if options.as_stored else ''}"
    write(out, rows, facts)
    print(f"written: {out}.json and {out}.svg", file=sys.stderr)


def _files(start: Path, options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Every candidate, made in turn unless it is there from an earlier run."""
    stem = start.with_suffix("")
    for scheme in options.schemes:
        for method in options.methods:
            target = Path(f"{stem}-{scheme}-{method.replace('+', '-')}.gguf")
            if not target.exists():
                kind, _, bits = scheme.partition("@")
                own = Options(kind, method, tokens=options.calibration_tokens)
                quantize(start, target, replace(own, target_bits=float(bits)) if bits else own)
            yield f"Octavo {scheme} {method}", target
    for kind in options.rivals:
        target = Path(f"{stem}-llama-{kind}.gguf")
        if not target.exists():
            partial = target.with_suffix(".partial")
            program = options.llama_bin / "llama-quantize"
            command = [str(program), str(start), str(partial), kind, str(options.threads)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            partial.rename(target)
        yield f"llama.cpp {kind}", target


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantizing", description=__doc__)
    parser.add_argument("model")
    parser.add_argument(
        "--schemes",
        nargs="*",
        default=["q4_0", "int4-g32"],
        help="mixed@5.5 is mixed with 5.5 bits a weight of the file",
    )
    parser.add_argument("--methods", nargs="*", default=["rtn", "awq", "gptq"])
    parser.add_argument("--rivals", nargs="*", default=["Q4_0", "Q4_1", "Q4_K_M"])
    parser.add_argument("--tokens", type=int, default=2048, help="of the built-in text")
    parser.add_argument("--calibration-tokens", type=int, default=8192)
    parser.add_argument("--as-stored", action="store_true", help="leave numbers on their grid")
    parser.add_argument("--reference", choices=("float", "native"), default="float")
    parser.add_argument("--threads", type=int, default=2, help="of llama-quantize")
    parser.add_argument("--llama-bin", type=Path, required=True, help="where llama-quantize is")
    parser.add_argument("--cache", type=Path, default=Path("build/quantizing"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

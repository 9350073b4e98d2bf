"""`python -m benchmarks.quantizing MODEL`: what quantizing costs, by Octavo and by llama.cpp.

All start from the same file of 16-bit weights and are run by the same engine against the same
float32 reference, so that only the weights differ. The models at hand are quantized files: their
numbers lie on a grid, and who uses that grid again finds them again. So by default each number is
first moved within half a step of its block of 32, as far as rounding to four bits may have moved
it; the model that results is the reference. --as-stored leaves the numbers on their grid.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.llama_cpp import VERSION

from octavo.convert.tensors import ENCODERS
from octavo.eval import Divergence, default_text, divergence, open_source, windows_of
from octavo.quantize import Options, quantize
from octavo.quantize.recipe import is_quantized
from octavo.weights import SCHEMES, Tensor, dequantize, open_checkpoint, resolve
from octavo.weights.gguf_writer import TensorEntry, write_gguf
from octavo.weights.whole import whole_file

CONTEXT = 512
GRID = 32


def main() -> None:
    options = _options()
    from octavo import __version__
    from octavo.bench import describe_machine

    folder = options.cache / options.model
    folder.mkdir(parents=True, exist_ok=True)
    start = folder / ("stored.gguf" if options.as_stored else "moved.gguf")
    if not start.exists():
        _write_start(resolve(options.model), start, move=not options.as_stored)
    files = dict(_files(start, options))
    results = _judge(start, files, options)
    rows = [_row(name, files[name], results[name]) for name in files]
    print(_table(rows))
    facts = {
        "octavo": __version__,
        "llama_cpp": VERSION,
        "machine": asdict(describe_machine()),
        "model": options.model,
        "start": "as stored" if options.as_stored else "moved within half a step",
        "calibration_tokens": options.calibration_tokens,
        "evaluation_tokens": options.tokens,
        "context": CONTEXT,
        "results": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"quantizing-{options.model}{'-stored' if options.as_stored else ''}.json"
    out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"written: {out}", file=sys.stderr)


def _write_start(source: Path, target: Path, *, move: bool) -> None:
    """The model in half precision, which every tool reads."""
    checkpoint = open_checkpoint(source)
    entries = [
        TensorEntry(name, t.shape, SCHEMES["F16" if is_quantized(t) else "F32"])
        for name, t in checkpoint.tensors.items()
    ]
    metadata = {**checkpoint.metadata, "general.file_type": 1}
    draw = np.random.default_rng(0)

    def data() -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        for entry, tensor in zip(entries, checkpoint.tensors.values(), strict=True):
            values = dequantize(tensor)
            if move and is_quantized(tensor):
                values = _moved(values, draw)
            yield ENCODERS[entry.scheme.name](values)

    with whole_file(target) as file:
        write_gguf(file, metadata, entries, data())


def _moved(values: np.ndarray[Any, Any], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each number moved by up to half of a sixteenth of its block's range."""
    blocks = values.reshape(-1, GRID)
    step = (blocks.max(axis=1, keepdims=True) - blocks.min(axis=1, keepdims=True)) / 15
    shift = draw.random(blocks.shape, np.float32) - np.float32(0.5)
    moved: np.ndarray[Any, Any] = (blocks + step * shift).reshape(values.shape)
    return moved


def _files(start: Path, options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Every candidate, made in turn unless it is there from an earlier run."""
    stem = start.with_suffix("")
    for scheme in options.schemes:
        for method in options.methods:
            target = Path(f"{stem}-{scheme}-{method.replace('+', '-')}.gguf")
            if not target.exists():
                quantize(start, target, Options(scheme, method, tokens=options.calibration_tokens))
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


def _judge(
    start: Path, files: dict[str, Path], options: argparse.Namespace
) -> dict[str, Divergence]:
    """All candidates beside the reference on the same windows, one after the other in memory."""
    found = {}
    for name, path in files.items():
        with ExitStack() as stack:
            reference, candidate = (
                stack.enter_context(
                    closing(open_source(str(p), name=name, weights=weights, context=CONTEXT))
                )
                for p, weights in ((start, options.reference), (path, "native"))
            )
            windows = windows_of(
                reference.token_ids(default_text()),
                CONTEXT,
                bos=reference.bos,
                max_tokens=options.tokens,
            )
            (found[name],) = divergence(reference, [candidate], windows)
        print(f"{name}: KL {found[name].kl.mean:.5f}", file=sys.stderr)
    return found


def _row(name: str, path: Path, result: Divergence) -> dict[str, Any]:
    checkpoint = open_checkpoint(path)
    matrices = [t for t in checkpoint.tensors.values() if _is_body(t)]
    bits = 8 * sum(t.num_bytes for t in matrices) / sum(t.size for t in matrices)
    return {
        "name": name,
        "size_bytes": path.stat().st_size,
        "layer_bits": bits,
        "kl": asdict(result.kl),
        "agreement": asdict(result.agreement),
        "perplexity": asdict(result.candidate.perplexity),
        "reference_perplexity": asdict(result.reference.perplexity),
    }


def _is_body(tensor: Tensor) -> bool:
    return tensor.name.startswith("blk.") and is_quantized(tensor)


def _table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| | size | bits in layers | KL | same top token | perplexity |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        kl, agreement = row["kl"], row["agreement"]
        lines.append(
            f"| {row['name']} | {row['size_bytes'] / 1e6:.1f} MB | {row['layer_bits']:.2f}"
            f" | {kl['mean']:.4f} ± {kl['stderr']:.4f} | {agreement['mean']:.1%}"
            f" | {row['perplexity']['mean']:.2f} |"
        )
    reference = rows[0]["reference_perplexity"]["mean"]
    return "\n".join([*lines, f"| the float model | | | 0 | | {reference:.2f} |"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantizing", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--schemes", nargs="*", default=["q4_0", "int4-g32"])
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

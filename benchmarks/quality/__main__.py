"""`python -m benchmarks.quality`: what quantized computing costs, in Octavo and in llama.cpp.

For each model one pass over the built-in text: Octavo with the file's weights widened to float32 is
the reference, and its logits, Octavo's own with native weights and llama.cpp's meet row by row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.llama_cpp import VERSION
from benchmarks.quality.llama_cpp import LlamaSource, build_program
from benchmarks.quality.report import Judged, table, write_json, write_plot
from benchmarks.quality.widen import widen

from octavo.eval import (
    EngineSource,
    LogitsSource,
    Progress,
    default_text,
    divergence,
    open_source,
    windows_of,
)

MODELS = ("smollm2", "gemma3-270m", "qwen2.5-coder-1.5b")
KV_TYPES = {"Octavo": "auto", "Octavo, f16 KV": "f16", "Octavo, f32 KV": "f32"}


def main() -> None:
    options = _options()
    from octavo import __version__
    from octavo.bench import describe_machine

    program = build_program(options.cache, options.llama_bin)
    judged = []
    for model in options.models:
        judged.append(_judge(model, program, options))
        print(table(judged[-1:]), file=sys.stderr)
    facts = {
        "octavo": __version__,
        "llama_cpp": VERSION,
        "machine": asdict(describe_machine()),
        "text": "built in",
        "tokens": options.tokens,
        "context": options.context,
    }
    print(table(judged))
    for one in judged:
        print(
            f"{one.model}: KL of Octavo minus llama.cpp {one.beyond.mean:+.5f} "
            f"± {one.beyond.stderr:.5f}"
        )
    out = options.out / "quality"
    write_json(out.with_suffix(".json"), judged, facts)
    write_plot(out.with_suffix(".svg"), judged, "The same files, against float32")
    print(f"written: {out}.json and {out}.svg", file=sys.stderr)


def _judge(model: str, program: Path, options: argparse.Namespace) -> Judged:
    from octavo.weights import resolve

    path = resolve(model)
    with ExitStack() as stack:

        def opened(name: str, weights: str, kv_dtype: str = "auto") -> EngineSource:
            source = open_source(
                str(path),
                name=name,
                context=options.context,
                weights=weights,
                kv_dtype=kv_dtype,
                products="int8",  # the coarsest of what answers are made with anywhere
                num_threads=options.threads,
            )
            return stack.enter_context(closing(source))

        reference = opened("float32", "float")
        candidates: list[LogitsSource] = [
            opened(name, "native", kv_dtype) for name, kv_dtype in KV_TYPES.items()
        ]
        for name, file in _llama_files(path, options, stack).items():
            llama = LlamaSource(name, program, file, options.context, options.threads)
            candidates.append(stack.enter_context(closing(llama)))
        ids = reference.token_ids(default_text())
        windows = windows_of(ids, options.context, bos=reference.bos, max_tokens=options.tokens)
        results = divergence(reference, candidates, windows, _progress(model))
    return Judged(model, {result.name: result for result in results})


def _llama_files(path: Path, options: argparse.Namespace, stack: ExitStack) -> dict[str, Path]:
    """What llama.cpp runs: the file itself and, to judge the reference, its float32 twin."""
    if not options.check_reference:
        return {"llama.cpp": path}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.cache)))
    widen(path, folder / "float32.gguf")
    return {"llama.cpp": path, "llama.cpp, float32 file": folder / "float32.gguf"}


def _progress(model: str) -> Progress:
    def report(done: int, total: int) -> None:
        end = "\n" if done == total else "\r"
        print(f"{model}: {done} of {total} tokens", end=end, file=sys.stderr, flush=True)

    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--tokens", type=int, default=4096, help="of the built-in text")
    parser.add_argument("--context", type=int, default=512, help="tokens of a window")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-bin", type=Path, help="a folder with llama.cpp built already")
    parser.add_argument(
        "--check-reference",
        action="store_true",
        help="also run llama.cpp on a float32 copy of each file (4 bytes a weight, on disk)",
    )
    parser.add_argument("--cache", type=Path, default=Path("build/peers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

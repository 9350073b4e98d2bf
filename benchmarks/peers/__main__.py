"""`python -m benchmarks.peers smollm2`: Octavo beside its rivals, in one command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.ik_llama_cpp import IkLlamaCpp, find
from benchmarks.peers.llama_cpp import LlamaCpp, find_or_build
from benchmarks.peers.octavo import Octavo
from benchmarks.peers.openvino import openvino
from benchmarks.peers.peer import Peer, Task, tasks_for
from benchmarks.peers.report import Line, table, write_json, write_plot
from benchmarks.peers.vllm import vllm

EXAMPLES = """examples:
  python -m benchmarks.peers smollm2                            beside llama.cpp
  python -m benchmarks.peers smollm2 --peers llama.cpp,vllm     vLLM gets an environment of its own
  python -m benchmarks.peers smollm2 --products bf16            on a processor with tiles
  python -m benchmarks.peers qwen2.5-coder-1.5b --peers vllm --vllm-python ~/vllm/bin/python
"""


def main() -> None:
    options = _options()
    from octavo.bench import describe_machine
    from octavo.weights import resolve

    if options.build:
        find_or_build(options.cache, options.llama_bin)
        return
    model = resolve(options.model)
    peers: list[Peer] = [Octavo(model, options.threads, options.products, options.mixed)]
    peers += filter(None, (RIVALS[name](model, options) for name in options.peers))
    try:
        lines = _measure(peers, tasks_for(model), options.repeat)
    finally:
        for peer in peers:
            peer.close()
    facts = {
        "model": options.model,
        "threads": options.threads,
        "products": options.products,
        "max_num_mixed_tokens": options.mixed,
        "versions": {peer.name: peer.version for peer in peers},
        "machine": asdict(describe_machine()),
    }
    rivals = [peer.name for peer in peers[1:]]
    print(table(lines, rivals))
    kind = "" if options.products == "auto" else f"-{options.products}"
    out = options.out / f"peers-{model.stem}{kind}"
    write_json(out.with_name(f"{out.name}.json"), lines, facts)
    title = f"{options.model}, {options.threads} threads, {facts['machine']['cpu']}"
    write_plot(out.with_name(f"{out.name}.svg"), lines, rivals, title)
    print(f"written: {out}.json and {out}.svg", file=sys.stderr)


def _measure(peers: list[Peer], tasks: tuple[Task, ...], repeat: int) -> list[Line]:
    """Every engine in turn within a repetition, so that what disturbs one disturbs all."""
    lines = [Line(task.name) for task in tasks]
    for repetition in range(repeat):
        print(f"repetition {repetition + 1} of {repeat}", file=sys.stderr)
        for task, line in zip(tasks, lines, strict=True):
            for peer in peers:
                rate = peer.measure(task)
                if rate is not None:
                    line.rates.setdefault(peer.name, []).append(rate)
    return lines


def _llama_cpp(model: Path, options: argparse.Namespace) -> Peer:
    return LlamaCpp(model, options.threads, find_or_build(options.cache, options.llama_bin))


def _ik_llama_cpp(model: Path, options: argparse.Namespace) -> Peer:
    return IkLlamaCpp(model, options.threads, find(options.ik_llama_bin))


RIVALS: dict[str, Callable[[Path, argparse.Namespace], Peer | None]] = {
    "llama.cpp": _llama_cpp,
    "ik_llama.cpp": _ik_llama_cpp,
    "vllm": lambda model, o: vllm(model, o.threads, o.cache, o.vllm_python),
    "openvino": lambda model, o: openvino(model, o.threads, o.cache, o.openvino_python),
}


def _peers(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RIVALS:
            raise argparse.ArgumentTypeError(f"{name}: expected some of {', '.join(RIVALS)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--peers", type=_peers, default=["llama.cpp"], help=", ".join(RIVALS))
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--products", default="auto", help="Octavo's: int8, bf16 or mixed")
    parser.add_argument(
        "--mixed",
        type=int,
        default=192,
        help="Octavo's --max-num-mixed-tokens; 512 is best where only tokens/s count",
    )
    parser.add_argument("--llama-bin", type=Path, help="a folder with llama-bench built already")
    parser.add_argument("--ik-llama-bin", type=Path, help="a folder with ik_llama.cpp's")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vLLM installed")
    parser.add_argument("--openvino-python", type=Path, help="the Python that has OpenVINO GenAI")
    parser.add_argument("--build", action="store_true", help="only fetch and build llama.cpp")
    parser.add_argument("--cache", type=Path, default=Path("build/peers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

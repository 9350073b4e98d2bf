"""`python -m benchmarks.peers smollm2`: Octavo beside llama.cpp, in one command."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.llama_cpp import VERSION, find_or_build
from benchmarks.peers.report import Line, table, write_json, write_plot
from benchmarks.peers.workloads import measure_llama, measure_octavo, tasks_for


def main() -> None:
    options = _options()
    from octavo import __version__
    from octavo.bench import describe_machine
    from octavo.weights import resolve

    model = resolve(options.model)
    binaries = find_or_build(options.cache, options.llama_bin)
    if options.build:
        return
    tasks = tasks_for(model)
    lines = [Line(task.name) for task in tasks]
    for repetition in range(options.repeat):
        print(f"repetition {repetition + 1} of {options.repeat}", file=sys.stderr)
        for task, line in zip(tasks, lines, strict=True):
            line.octavo.append(measure_octavo(task, model, options.threads))
            line.llama_cpp.append(measure_llama(task, model, options.threads, binaries))
    facts = {
        "model": options.model,
        "threads": options.threads,
        "octavo": __version__,
        "llama_cpp": VERSION,
        "machine": asdict(describe_machine()),
    }
    print(table(lines))
    out = options.out / f"peers-{model.stem}"
    write_json(out.with_name(f"{out.name}.json"), lines, facts)
    title = f"{options.model}, {options.threads} threads, {facts['machine']['cpu']}"
    write_plot(out.with_name(f"{out.name}.svg"), lines, title)
    print(f"written: {out}.json and {out}.svg", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-bin", type=Path, help="a folder with llama-bench built already")
    parser.add_argument("--build", action="store_true", help="only fetch and build llama.cpp")
    parser.add_argument("--cache", type=Path, default=Path("build/peers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""A mixture of experts as a grouped product, beside the same rows taken one at a time.

A made model of two layers with random weights and a random router. Each measurement runs T rows as
one step, then the same rows as T steps of one row, then T x k rows through one expert of the same
size, which is the same arithmetic without any grouping: what a dense layer of that size takes. The
three run in turn; the ratios are those of neighbours. Time is that of one thread on its processor:
what others on the machine take does not count, but for the memory they read.

    python -m benchmarks.moe --json moe.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import table, write_json

from octavo.backends import BackendOptions, get_backend
from octavo.backends.cpu.executable import CpuExecutable
from octavo.backends.testing import PagedSequences, random_tensor
from octavo.graph import ExpertsAttrs, Graph, GraphBuilder, RouteAttrs
from octavo.models import ModelConfig, RopeConfig
from octavo.weights import Checkpoint

LAYERS = 2
BEST_OF = 3


@dataclass(frozen=True)
class Sizes:
    """Of one mixture."""

    num_experts: int
    top_k: int
    features: int
    hidden: int


@dataclass(frozen=True)
class Timed:
    """Seconds of all rows, one number a repetition."""

    scheme: str
    rows: int
    grouped_s: list[float]
    one_by_one_s: list[float]
    dense_s: list[float]

    def ratios(self, other: Sequence[float]) -> list[float]:
        """How many times as long the other took, pair by pair."""
        return [b / a for a, b in zip(self.grouped_s, other, strict=True)]


class Made:
    """A made model, ready to be timed."""

    def __init__(self, sizes: Sizes, scheme: str, rows: int) -> None:
        self.rows = rows
        graph = _graph(sizes, rows)
        kinds = {"table": "F32", "norm": "F32", "router": "F32"}
        tensors = {
            value.name: random_tensor(
                value.name,
                kinds.get(value.name.split(".")[0], scheme),
                tuple(int(size) for size in value.shape),
                seed,
            )
            for seed, value in enumerate(graph.weights)
        }
        config = ModelConfig(
            *("made", "made", rows, sizes.features, 0, 1, 1, 2, sizes.hidden, 1e-6, rows),
            rope=RopeConfig(10000.0, 2),
        )
        checkpoint = Checkpoint(Path("made"), "gguf", {}, tensors, 0)
        options = BackendOptions(num_threads=1, max_tokens=rows, max_seqs=1)
        made = get_backend("cpu").compile(graph, checkpoint, config, options)
        assert isinstance(made, CpuExecutable)
        self.executable = made

    def seconds(self, chunk: int) -> float:
        """Of the processor for all rows, `chunk` rows a step."""
        self.executable.allocate_kv(-(-self.rows // self.executable.block_size) + 1)
        paged = PagedSequences(self.executable.block_size, self.rows)
        sequence = paged.open()
        parts = [range(i, min(i + chunk, self.rows)) for i in range(0, self.rows, chunk)]
        steps = [paged.step({sequence: list(part)}, rows=[0]) for part in parts]
        start = time.process_time()
        for step in steps:
            self.executable.forward(step)
        return time.process_time() - start


def _graph(sizes: Sizes, rows: int) -> Graph:
    """embedding, then layers of norm, router, experts and residual; no attention."""
    g = GraphBuilder()
    e, d, f = sizes.num_experts, sizes.features, sizes.hidden
    x = g.embed(g.weight("table", (rows, d)))
    for i in range(LAYERS):
        y = g.rms_norm(x, g.weight(f"norm.{i}", (d,)), 1e-6)
        logits = g.linear(y, g.weight(f"router.{i}", (e, d)))
        routes = g.route(logits, None, RouteAttrs(sizes.top_k, normalize=True))
        shapes = (("gate", (e, f, d)), ("up", (e, f, d)), ("down", (e, d, f)))
        gate, up, down = (g.weight(f"{name}.{i}", shape) for name, shape in shapes)
        x = g.add(x, g.experts(y, routes, (gate, up, down), (None, None, None), ExpertsAttrs()))
    return g.build(g.select_rows(x))


def measure(sizes: Sizes, scheme: str, rows: int, repeat: int) -> Timed:
    """Interleaved. Of each, the best of some runs right after another: the first one finds threads
    asleep and caches filled with something else."""
    grouped = Made(sizes, scheme, rows)
    one = Sizes(1, 1, sizes.features, sizes.hidden)
    dense = Made(one, scheme, rows * sizes.top_k)
    runs = [
        tuple(
            min(made.seconds(chunk) for _ in range(BEST_OF))
            for made, chunk in ((grouped, rows), (grouped, 1), (dense, dense.rows))
        )
        for _ in range(repeat)
    ]
    together, alone, plain = (list(column) for column in zip(*runs, strict=True))
    return Timed(scheme, rows, together, alone, plain)


def report(timed: Sequence[Timed], sizes: Sizes) -> str:
    """Medians, and ratios of neighbours with their spread."""
    products = 2 * 3 * sizes.features * sizes.hidden * sizes.top_k * LAYERS
    return table(
        ["weights, rows", "grouped", "Gop/s", "one at a time", "ratio", "spread", "of dense"],
        [
            [
                f"{t.scheme}, {t.rows}",
                f"{statistics.median(t.grouped_s) * 1e3:.2f} ms",
                f"{products * t.rows / statistics.median(t.grouped_s) / 1e9:.0f}",
                f"{statistics.median(t.one_by_one_s) * 1e3:.2f} ms",
                f"{statistics.median(ratios):.1f}x",
                f"{min(ratios):.1f}-{max(ratios):.1f}",
                f"{statistics.median(t.ratios(t.dense_s)) * 100:.0f} %",
            ]
            for t in timed
            for ratios in (t.ratios(t.one_by_one_s),)
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--chosen", type=int, default=2)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--schemes", nargs="+", default=["Q4_K", "Q8_0", "MXFP4"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    sizes = Sizes(a.experts, a.chosen, a.features, a.hidden)
    timed = [measure(sizes, scheme, rows, a.repeat) for scheme in a.schemes for rows in a.rows]
    print(report(timed, sizes))
    if a.json:
        write_json(a.json, [asdict(t) for t in timed], sizes=asdict(sizes))


if __name__ == "__main__":
    main()

"""A grouped product gives every row the bits that it gets alone, whoever shares its experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import Layout, PagedSequences, random_tensor, run_op
from octavo.graph import ExpertsAttrs, GraphBuilder, Op, RouteAttrs
from octavo.models import ModelConfig, RopeConfig
from octavo.weights import Checkpoint

ROWS, EXPERTS, CHOSEN, FEATURES, HIDDEN = 70, 8, 3, 256, 512
SHAPES = {
    "table": (ROWS, FEATURES),
    "router": (EXPERTS, FEATURES),
    "gate": (EXPERTS, HIDDEN, FEATURES),
    "up": (EXPERTS, HIDDEN, FEATURES),
    "down": (EXPERTS, FEATURES, HIDDEN),
}


def layer(scheme: str, threads: int = 2, weights: str = "native") -> Executable:
    """norm -> router -> experts -> residual, and nothing else; row t of the table is token t."""
    g = GraphBuilder()
    value = {name: g.weight(name, shape) for name, shape in SHAPES.items()}
    x = g.embed(value["table"])
    routes = g.route(g.linear(x, value["router"]), None, RouteAttrs(CHOSEN, normalize=True))
    matrices = (value["gate"], value["up"], value["down"])
    y = g.add(x, g.experts(x, routes, matrices, (None, None, None), ExpertsAttrs()))
    graph = g.build(g.select_rows(y))
    kinds = {"table": "F32", "router": "F32"}
    tensors = {
        name: random_tensor(name, kinds.get(name, scheme), shape, seed)
        for seed, (name, shape) in enumerate(SHAPES.items())
    }
    config = ModelConfig(
        *("one-layer", "one-layer", ROWS, FEATURES, 0, 1, 1, 2, HIDDEN, 1e-6, 99),
        rope=RopeConfig(10000.0, 2),
    )
    options = BackendOptions(weights, num_threads=threads, max_tokens=ROWS, max_seqs=ROWS)
    checkpoint = Checkpoint(Path("one-layer"), "gguf", {}, tensors, 0)
    return get_backend("cpu").compile(graph, checkpoint, config, options)


def run(executable: Executable, tokens: list[int]) -> np.ndarray:
    executable.allocate_kv(8)
    paged = PagedSequences(executable.block_size, 8)
    return executable.forward(paged.step({paged.open(): tokens})).copy()


@pytest.mark.parametrize("scheme", ["F32", "BF16", "Q8_0", "Q4_K", "Q6_K"])
def test_a_row_has_the_same_bits_in_any_company(scheme: str) -> None:
    whole = run(layer(scheme), list(range(ROWS)))
    assert np.isfinite(whole).all()
    alone = layer(scheme, threads=1)
    for token in (0, 1, 37, 69):
        np.testing.assert_array_equal(run(alone, [token])[0], whole[token])
    order = np.random.default_rng(0).permutation(ROWS)
    for count in (2, 13, 48, ROWS):
        got = run(layer(scheme, threads=3), order[:count].tolist())
        np.testing.assert_array_equal(got, whole[order[:count]])


def test_all_rows_at_one_expert() -> None:
    executable = layer("Q8_0")
    same = run(executable, [5] * ROWS)
    np.testing.assert_array_equal(same, np.repeat(run(executable, [5]), ROWS, axis=0))


def test_an_id_that_is_no_experts_is_taken_for_the_first() -> None:
    """A router never gives one; memory must be safe all the same."""
    rng = np.random.default_rng(1)
    shapes = ((4, 32, 64), (4, 32, 64), (4, 64, 32))
    matrices = [rng.normal(0, 0.1, shape).astype(np.float32) for shape in shapes]
    x = rng.normal(0, 1, (6, 64)).astype(np.float32)
    weights = np.full((6, 1), 0.5, np.float32)
    bad = np.array([[np.nan], [-1], [4], [1e30], [-np.inf], [0.5]], np.float32)
    cpu = get_backend("cpu")

    def result(ids: np.ndarray) -> np.ndarray:
        routes = np.concatenate([ids, weights], axis=1)
        return run_op(cpu, Op.EXPERTS, [x, routes, *matrices], ExpertsAttrs(), Layout((6,)))

    np.testing.assert_array_equal(result(bad), result(np.zeros_like(bad)))

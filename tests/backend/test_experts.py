"""A grouped product gives every row the bits that it gets alone, whoever shares its experts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import Layout, PagedSequences, random_tensor, run_op
from octavo.graph import ExpertsAttrs, GraphBuilder, Op, RouteAttrs
from octavo.models import ModelConfig, RopeConfig
from octavo.weights import SCHEMES, Checkpoint, dequantize
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import DerivedTensor, GroupedTensor, StackedTensor

ROWS, EXPERTS, CHOSEN, FEATURES, HIDDEN = 70, 8, 3, 256, 512
SHAPES = {
    "table": (ROWS, FEATURES),
    "router": (EXPERTS, FEATURES),
    "gate": (EXPERTS, HIDDEN, FEATURES),
    "up": (EXPERTS, HIDDEN, FEATURES),
    "down": (EXPERTS, FEATURES, HIDDEN),
}


def spread(name: str, shape: tuple[int, ...], seed: int) -> StackedTensor:
    """Four bits with zero points, each expert's columns in an order of its own, the same for gate
    and up."""
    rng = np.random.default_rng(SHAPES[name][2])
    parts = []
    for expert in range(shape[0]):
        held = random_tensor(f"{name}{expert}", "Q4_Z", shape[1:], 100 * seed + expert)
        order = rng.permutation(shape[2]).astype(np.int32)
        dense = np.empty(shape[1:], np.float32)
        dense[:, order] = dequantize(held)
        by_group = DerivedTensor(held.name, held.shape, held.scheme, Made(held.data, dense))
        origin = Made(dense.astype(np.float16).reshape(-1).view(np.uint8), dense)
        parts.append(GroupedTensor(held.name, held.shape, SCHEMES["F16"], origin, by_group, order))
    return StackedTensor(name, parts)


@dataclass(frozen=True)
class Made:
    """What tensors are made from, here made already."""

    data: np.ndarray
    dense: np.ndarray
    sources = ()

    def values(self) -> np.ndarray:
        return self.dense

    def blocks(self, scheme: Scheme) -> np.ndarray:
        return self.data


def layer(
    scheme: str, threads: int = 2, weights: str = "native", backend: str = "cpu", bias: bool = False
) -> Executable:
    """norm -> router -> experts -> residual, and nothing else; row t of the table is token t."""
    g = GraphBuilder()
    value = {name: g.weight(name, shape) for name, shape in SHAPES.items()}
    x = g.embed(value["table"])
    routes = g.route(g.linear(x, value["router"]), None, RouteAttrs(CHOSEN, normalize=True))
    matrices = (value["gate"], value["up"], value["down"])
    biases = {f"{name}_bias": (EXPERTS, SHAPES[name][1]) for name in ("gate", "up", "down") if bias}
    added = [g.weight(name, shape) for name, shape in biases.items()] or [None] * 3
    y = g.add(x, g.experts(x, routes, matrices, (added[0], added[1], added[2]), ExpertsAttrs()))
    graph = g.build(g.select_rows(y))
    kinds = dict.fromkeys(("table", "router", *biases), "F32")
    kinds |= dict.fromkeys(("gate", "up", "down"), "F32") if scheme == "spread" else {}
    tensors = {
        name: random_tensor(name, kinds.get(name, scheme), shape, seed)
        for seed, (name, shape) in enumerate({**SHAPES, **biases}.items())
    }
    if scheme == "spread":
        more = {n: spread(n, SHAPES[n], seed) for seed, n in enumerate(("gate", "up", "down"))}
        tensors = {**tensors, **more}
    config = ModelConfig(
        *("one-layer", "one-layer", ROWS, FEATURES, 0, 1, 1, 2, HIDDEN, 1e-6, 99),
        rope=RopeConfig(10000.0, 2),
    )
    options = BackendOptions(weights, num_threads=threads, max_tokens=ROWS, max_seqs=ROWS)
    checkpoint = Checkpoint(Path("one-layer"), "gguf", {}, tensors, 0)
    return get_backend(backend).compile(graph, checkpoint, config, options)


def run(executable: Executable, tokens: list[int]) -> np.ndarray:
    executable.allocate_kv(8)
    paged = PagedSequences(executable.block_size, 8)
    return executable.forward(paged.step({paged.open(): tokens})).copy()


@pytest.mark.parametrize("scheme", ["F32", "BF16", "Q8_0", "Q4_K", "Q6_K", "spread"])
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


@pytest.mark.parametrize("bias", [False, True])
def test_columns_in_an_order_of_their_own(bias: bool) -> None:
    """Experts in other orders give what they give in the file's, but for activations in int8."""
    tokens = list(range(ROWS))
    table = random_tensor("table", "F32", SHAPES["table"], 0)
    x = dequantize(table)
    expected = run(layer("spread", weights="float", backend="reference", bias=bias), tokens) - x
    as_float = run(layer("spread", weights="float", bias=bias), tokens) - x
    assert np.std(as_float - expected) < 2e-3 * np.std(expected)  # made of halves
    got = run(layer("spread", bias=bias), tokens) - x
    assert 0 < np.std(got - expected) < 0.02 * np.std(expected)


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

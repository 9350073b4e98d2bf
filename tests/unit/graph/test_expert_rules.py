"""Each rule of the operators of mixtures has operands or attributes that break it."""

from __future__ import annotations

import pytest

from octavo.errors import GraphError
from octavo.graph import ExpertsAttrs, GraphBuilder, RouteAttrs, Value
from octavo.records import replace

GROUPED = RouteAttrs(2, num_groups=4, top_groups=2)


def activation(g: GraphBuilder, size: int) -> Value:
    return g.embed(g.weight(f"table{size}", (9, size)))


def test_shapes() -> None:
    g = GraphBuilder()
    routes = g.route(activation(g, 8), g.weight("bias", (8,)), GROUPED)
    assert routes.shape == ("T", 4)
    x = activation(g, 16)
    weights = g.weight("gate", (8, 5, 16)), g.weight("up", (8, 5, 16)), g.weight("down", (8, 16, 5))
    assert g.experts(x, routes, weights, (None, None, None), ExpertsAttrs()).shape == ("T", 16)
    assert g.gate_rows(x, activation(g, 1)).shape == ("T", 16)


@pytest.mark.parametrize(
    ("attrs", "bias", "message"),
    [
        (RouteAttrs(9), None, "top_k 9, expected between 1 and 8"),
        (RouteAttrs(0), None, "top_k 0"),
        (replace(GROUPED, top_k=5), None, "top_k 5, expected between 1 and 4"),
        (replace(GROUPED, num_groups=3), None, "8 experts in 3 groups"),
        (replace(GROUPED, num_groups=0), None, "8 experts in 0 groups"),
        (replace(GROUPED, top_groups=5), None, "5 of 4 groups"),
        (replace(GROUPED, top_groups=0), None, "0 of 4 groups"),
        (replace(GROUPED, num_groups=8, group_score="top2"), None, "two experts or more"),
        (replace(GROUPED, scale=0.0), None, "scale 0.0"),
        (GROUPED, 7, r"bias \[7\], expected bias \[8\]"),
    ],
)
def test_bad_routing_is_refused(attrs: RouteAttrs, bias: int | None, message: str) -> None:
    g = GraphBuilder()
    logits, stored = activation(g, 8), g.weight("b", (bias,)) if bias else None
    with pytest.raises(GraphError, match=message):
        g.route(logits, stored, attrs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gate": (8, 5, 17)}, r"x \['T', 16\] and gate \[8, 5, 17\]"),
        ({"up": (8, 6, 16)}, "as gate"),
        ({"down": (8, 5, 16)}, r"down \[8, 5, 16\], expected \[8, 16, 5\]"),
        ({"gate": (5, 16)}, "expected rank 3"),
        ({"routes": (5,)}, "ids and weights"),
        ({"routes": (18,)}, "k between 1 and E"),
        ({"down_bias": (8, 5)}, r"down_bias \[8, 5\], expected \[8, 16\]"),
        ({"up_bias": (7, 5)}, r"up_bias \[7, 5\], expected \[8, 5\]"),
    ],
)
def test_experts_that_do_not_fit_are_refused(
    changed: dict[str, tuple[int, ...]], message: str
) -> None:
    g = GraphBuilder()
    shapes = {"gate": (8, 5, 16), "up": (8, 5, 16), "down": (8, 16, 5), "routes": (4,), **changed}
    routes = activation(g, *shapes.pop("routes"))
    value = {name: g.weight(name, shape) for name, shape in shapes.items()}
    weights = (value["gate"], value["up"], value["down"])
    biases = (value.get("gate_bias"), value.get("up_bias"), value.get("down_bias"))
    x = activation(g, 16)
    with pytest.raises(GraphError, match=message):
        g.experts(x, routes, weights, biases, ExpertsAttrs())


def test_a_limit_must_be_above_zero() -> None:
    g = GraphBuilder()
    x, routes = activation(g, 4), activation(g, 2)
    weights = g.weight("gate", (3, 4, 4)), g.weight("up", (3, 4, 4)), g.weight("down", (3, 4, 4))
    attrs = ExpertsAttrs("clamped_swiglu", 1.0, 0.0)
    with pytest.raises(GraphError, match=r"limit 0\.0"):
        g.experts(x, routes, weights, (None, None, None), attrs)


def test_one_gate_a_row() -> None:
    g = GraphBuilder()
    x, gate = activation(g, 4), activation(g, 2)
    with pytest.raises(GraphError, match=r"gate \[M, 1\]"):
        g.gate_rows(x, gate)

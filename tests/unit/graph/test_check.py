"""Each rule of the graph check has a graph that breaks it and only it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from octavo.errors import GraphError
from octavo.graph import (
    RULES,
    AttentionAttrs,
    Graph,
    GraphBuilder,
    KvWriteAttrs,
    NoAttrs,
    Node,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    ScaleAttrs,
    SoftcapAttrs,
    Value,
    check_graph,
)
from octavo.records import replace

WRITE = KvWriteAttrs(layer=0, num_kv_heads=2, head_dim=8)
ATTEND = AttentionAttrs(layer=0, num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3)


def small_graph() -> Graph:
    """Two layers with every operator but MUL's and SILU's twins."""
    g = GraphBuilder()
    inv_freq = g.constant("inv_freq", np.ones(4, np.float32))
    x = g.scale(g.embed(g.weight("table", (50, 16))), 4.0)
    for layer in range(2):
        with g.scope(f"blk.{layer}"):
            x = _layer(g, x, inv_freq, layer)
    head = g.linear(g.select_rows(x), g.weight("head", (50, 16)), name="logits")
    return g.build(g.softcap(head, 30.0))


def _layer(g: GraphBuilder, x: Value, inv_freq: Value, layer: int) -> Value:
    h = g.rms_norm(x, g.weight("norm", (16,)), 1e-5)
    q = g.linear(h, g.weight("q", (32, 16)), g.weight("q.bias", (32,)), name="q")
    k, v = (g.linear(h, g.weight(name, (16, 16)), name=name) for name in "kv")
    q = g.rope(q, inv_freq, RopeAttrs(8), name="q_rope")
    k = g.rope(k, inv_freq, RopeAttrs(8), name="k_rope")
    g.kv_write(k, v, replace(WRITE, layer=layer))
    y = g.attention(q, replace(ATTEND, layer=layer))
    x = g.add(x, g.linear(y, g.weight("o", (16, 32)), name="o"))
    return g.mul(g.silu(x), g.gelu(x))


def find(graph: Graph, op: Op, nth: int = 0) -> int:
    return [i for i, node in enumerate(graph.nodes) if node.op is op][nth]


Mutation = Callable[[Graph], None]


def change(op: Op, nth: int = 0, **fields: object) -> Mutation:
    """Replace fields of the nth node of an operator; `inputs` may be a function of the old."""

    def mutate(graph: Graph) -> None:
        index = find(graph, op, nth)
        node = graph.nodes[index]
        new = {k: f(node) if callable(f) else f for k, f in fields.items()}
        graph.nodes[index] = replace(node, **new)
        if "output" in new and node.output is not None:
            _rewire(graph, node.output, graph.nodes[index].output)

    return mutate


def _rewire(graph: Graph, old: Value, new: Value | None) -> None:
    for i, node in enumerate(graph.nodes):
        inputs = tuple(new if value is old else value for value in node.inputs)
        graph.nodes[i] = replace(node, inputs=inputs)


def operand(place: int, value: Value | None) -> Callable[[Node], tuple[Value | None, ...]]:
    return lambda node: (*node.inputs[:place], value, *node.inputs[place + 1 :])


def weight(*shape: int) -> Value:
    return Value("other", shape, "weight")


def result(*shape: int | str) -> Value:
    return Value("loose", shape, "result")


def drop(op: Op, nth: int = 0) -> Mutation:
    return lambda graph: graph.nodes.pop(find(graph, op, nth)) and None


def swap_first_two_norms(graph: Graph) -> None:
    first, second = find(graph, Op.RMS_NORM), find(graph, Op.LINEAR)
    graph.nodes[first], graph.nodes[second] = graph.nodes[second], graph.nodes[first]


def second_name(graph: Graph) -> None:
    index = find(graph, Op.ADD)
    old = graph.nodes[index].output
    assert old is not None
    new = replace(old, name="scale")
    graph.nodes[index] = replace(graph.nodes[index], output=new)
    _rewire(graph, old, new)


def define_twice(graph: Graph) -> None:
    graph.nodes.insert(find(graph, Op.RMS_NORM) + 1, graph.nodes[find(graph, Op.RMS_NORM)])


def idle_result(graph: Graph) -> None:
    x = graph.nodes[0].output
    graph.nodes.append(Node(Op.SILU, (x,), Value("idle", ("T", 16), "result")))


def write_unread(graph: Graph) -> None:
    index = find(graph, Op.ATTENTION, 1)
    node = graph.nodes[index]
    attrs = replace(node.attrs, layer=0)
    graph.nodes[index] = replace(node, attrs=attrs)


def per_token_output(graph: Graph) -> None:
    graph.output = graph.nodes[0].output  # type: ignore[assignment]


def foreign_output(graph: Graph) -> None:
    graph.output = Value("nowhere", ("R", 50), "result")


def set_constant(array: np.ndarray | None) -> Mutation:
    def mutate(graph: Graph) -> None:
        graph.constants = {} if array is None else {"inv_freq": array}

    return mutate


ROPE, NORM = RopeAttrs(8), RmsNormAttrs(1e-5)

BROKEN: dict[str, tuple[Mutation, str]] = {
    # operands
    "too-few-operands": (change(Op.ADD, inputs=lambda n: n.inputs[:1]), "got 1 operands"),
    "too-many-operands": (change(Op.SILU, inputs=lambda n: n.inputs * 2), "got 2 operands"),
    "absent-operand": (change(Op.LINEAR, inputs=operand(1, None)), "got no weight"),
    "kind": (change(Op.ADD, inputs=operand(0, weight(4, 16))), "of kind weight, expected result"),
    "kind-of-table": (change(Op.EMBED, inputs=operand(0, weight(5))), "expected input"),
    "rank-of-weight": (change(Op.LINEAR, inputs=operand(1, weight(32))), "expected rank 2"),
    "rank-of-bias": (change(Op.LINEAR, inputs=operand(2, weight(32, 1))), "expected rank 1"),
    "size-zero": (change(Op.LINEAR, inputs=operand(1, weight(0, 16))), "sizes above 0"),
    "attributes": (change(Op.RMS_NORM, attrs=NoAttrs()), "expected RmsNormAttrs"),
    "attributes-unwanted": (change(Op.ADD, attrs=NORM), "expected NoAttrs"),
    # order and names
    "use-before-definition": (swap_first_two_norms, "before its definition"),
    "undefined": (change(Op.SILU, inputs=operand(0, result("T", 16))), "before its definition"),
    "defined-twice": (define_twice, "a second definition"),
    "names": (second_name, "a second value named 'scale'"),
    "names-empty": (change(Op.ADD, output=Value("", ("T", 16), "result")), "without a name"),
    "idle": (idle_result, r"results nobody reads: \['idle'\]"),
    # shapes
    "output-shape": (change(Op.ADD, output=Value("y", ("T", 17), "result")), "a result"),
    "output-kind": (change(Op.ADD, output=Value("y", ("T", 16), "weight")), "of kind weight"),
    "output-of-write": (change(Op.KV_WRITE, output=Value("y", ("T", 16), "result")), "'y'"),
    "no-output": (change(Op.SILU, output=None), "got no result"),
    "linear-sizes": (change(Op.LINEAR, inputs=operand(1, weight(32, 15))), r"weight \[N, K\]"),
    "bias-size": (change(Op.LINEAR, inputs=operand(2, weight(31))), "one per row"),
    "norm-divides": (change(Op.RMS_NORM, inputs=operand(1, weight(3))), "a multiple"),
    "embed-tokens": (
        change(Op.EMBED, inputs=operand(0, Value("ids", (3,), "input"))),
        "known sizes|tokens",
    ),
    # attribute ranges
    "eps": (change(Op.RMS_NORM, attrs=RmsNormAttrs(0.0)), "eps 0.0"),
    "eps-nan": (change(Op.RMS_NORM, attrs=RmsNormAttrs(math.nan)), "eps nan"),
    "unit-offset": (change(Op.RMS_NORM, attrs=RmsNormAttrs(1e-5, 0.5)), "0 or 1"),
    "scale-factor": (change(Op.SCALE, attrs=ScaleAttrs(math.inf)), "factor inf"),
    "softcap": (change(Op.SOFTCAP, attrs=SoftcapAttrs(0.0)), "cap 0.0"),
    "rope-heads": (change(Op.ROPE, attrs=RopeAttrs(5)), "whole heads"),
    "rope-rotary": (change(Op.ROPE, attrs=RopeAttrs(4)), "between 2 and head_dim 4"),
    "rope-magnitude": (change(Op.ROPE, attrs=RopeAttrs(8, magnitude=0.0)), "magnitude 0.0"),
    "write-heads": (change(Op.KV_WRITE, attrs=replace(WRITE, head_dim=4)), r"heads \* head_dim"),
    "write-layer": (change(Op.KV_WRITE, attrs=replace(WRITE, layer=-1)), "layer -1"),
    "heads": (change(Op.ATTENTION, attrs=replace(ATTEND, num_heads=3)), r"heads \* head_dim"),
    "heads-shared": (change(Op.ATTENTION, attrs=replace(ATTEND, num_kv_heads=3)), "multiple of"),
    "heads-none": (change(Op.ATTENTION, attrs=replace(ATTEND, num_kv_heads=0)), "multiple of"),
    "attention-scale": (change(Op.ATTENTION, attrs=replace(ATTEND, scale=-1.0)), "scale -1.0"),
    "window": (change(Op.ATTENTION, attrs=replace(ATTEND, window=0)), "window 0"),
    "attention-cap": (change(Op.ATTENTION, attrs=replace(ATTEND, softcap=-2.0)), "softcap -2.0"),
    # layers
    "layer-gap": (change(Op.KV_WRITE, nth=1, attrs=replace(WRITE, layer=2)), "layer 1, in order"),
    "layer-twice": (change(Op.KV_WRITE, nth=1, attrs=WRITE), "layer 1, in order"),
    "read-before-write": (drop(Op.KV_WRITE), "before its kv_write|nobody reads"),
    "read-other-shape": (
        change(Op.ATTENTION, attrs=AttentionAttrs(0, 8, 4, 4, 0.3)),
        "as written",
    ),
    "write-unread": (write_unread, r"layers \[1\] written and never read"),
    # constants and output
    "constant-missing": (set_constant(None), "got no array"),
    "constant-shape": (set_constant(np.ones(3, np.float32)), r"expected float32 \[4\]"),
    "constant-type": (set_constant(np.ones(4)), "got float64"),  # type: ignore[arg-type]
    "constant-nan": (set_constant(np.full(4, np.nan, np.float32)), "NaN or infinity"),
    "output-per-token": (per_token_output, r"expected \[R, n\]"),
    "output-foreign": (foreign_output, "got no node for it"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graph_is_refused(name: str) -> None:
    mutate, message = BROKEN[name]
    graph = small_graph()
    mutate(graph)
    with pytest.raises(GraphError, match=message):
        check_graph(graph)


def test_sound_graph_passes_and_prints_a_line_per_node() -> None:
    graph = small_graph()
    check_graph(graph)
    lines = str(graph).splitlines()
    assert len(lines) == len(graph.nodes)
    assert lines[0] == "embed['T', 16] = embed(tokens, table)"


def test_error_names_node_operator_got_and_expected() -> None:
    graph = small_graph()
    change(Op.ATTENTION, nth=1, attrs=replace(ATTEND, layer=1, window=-3))(graph)
    with pytest.raises(GraphError) as error:
        check_graph(graph)
    assert "node 'blk.1.attention' (attention, " in str(error.value)
    assert "got window -3, expected None or at least 1 token" in str(error.value)


def test_every_operator_has_a_rule() -> None:
    assert set(RULES) == set(Op)


def test_builder_refuses_at_once_and_names_the_node() -> None:
    g = GraphBuilder()
    x = g.embed(g.weight("table", (9, 4)))
    with pytest.raises(GraphError, match=r"node 'wrong' \(linear\): got x \['T', 4\] and weight"):
        g.linear(x, g.weight("w", (3, 5)), name="wrong")


def test_builder_gives_one_value_per_weight_and_unique_result_names() -> None:
    g = GraphBuilder()
    table = g.weight("table", (9, 4))
    assert g.weight("table", (9, 4)) is table
    with pytest.raises(GraphError, match=r"'table' asked for again: got weight \[9, 5\]"):
        g.weight("table", (9, 5))
    x = g.embed(table)
    assert [g.silu(x).name for _ in range(3)] == ["silu", "silu.2", "silu.3"]
    with g.scope("blk.0"):
        assert g.silu(x).name == "blk.0.silu"

"""Rules of multi-head latent attention's operators, and what the graph check says of its cache."""

from __future__ import annotations

import pytest

from octavo.errors import GraphError
from octavo.graph import (
    AttentionAttrs,
    Graph,
    GraphBuilder,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    Op,
    Value,
    check_graph,
)
from octavo.records import replace

WRITE = LatentWriteAttrs(layer=0, latent_dim=8, rope_dim=4)
ATTEND = LatentAttentionAttrs(layer=0, num_heads=2, latent_dim=8, rope_dim=4, scale=0.3)


def rows(g: GraphBuilder, name: str, width: int) -> Value:
    return g.embed(g.weight(f"{name}.table", (50, width)), name=name)


def graph(
    write: LatentWriteAttrs = WRITE, attend: LatentAttentionAttrs = ATTEND, q: int = 16
) -> Graph:
    g = GraphBuilder()
    g.latent_write(rows(g, "latent", 8), rows(g, "key", 4), write)
    y = g.latent_attention(rows(g, "q", q), rows(g, "q_rope", 8), attend)
    y = g.head_linear(y, g.weight("up", (10, 8)), 2)
    return g.build(g.select_rows(y))


def test_shapes() -> None:
    assert graph().output.shape == ("R", 10)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"write": replace(WRITE, latent_dim=9)}, r"latent \['T', 8\] with 1 heads of 9"),
        ({"write": replace(WRITE, rope_dim=0)}, r"key \['T', 4\] with 1 heads of 0"),
        ({"write": replace(WRITE, layer=-1)}, "layer -1"),
        ({"attend": replace(ATTEND, layer=1)}, "layer 1 before its latent_write"),
        ({"attend": replace(ATTEND, num_heads=3)}, r"q \['T', 16\] with 3 heads of 8"),
        ({"attend": replace(ATTEND, scale=float("nan"))}, "scale nan"),
        ({"q": 24}, r"q \['T', 24\] with 2 heads of 8"),
    ],
)
def test_each_rule_is_broken_by_name(fault: dict[str, object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph(**fault)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(9, 8), (10, 7), (10, 16)])
def test_head_linear_wants_whole_heads(shape: tuple[int, int]) -> None:
    g = GraphBuilder()
    with pytest.raises(GraphError, match=r"expected x \[M, heads \* K\]"):
        g.head_linear(rows(g, "x", 16), g.weight("w", shape), 2)


def test_a_layer_is_read_as_it_was_written() -> None:
    made = graph()
    index = [node.op for node in made.nodes].index(Op.LATENT_WRITE)
    node = made.nodes[index]
    narrow = Value("narrow", ("T", 6), "result")
    source = replace(made.nodes[0], output=narrow, inputs=(made.nodes[0].inputs[0], _table(6)))
    made.nodes[index] = replace(node, inputs=(narrow, node.inputs[1]), attrs=_write(6))
    made.nodes.insert(index, source)
    with pytest.raises(GraphError, match="latents of 8 and keys of 4, expected latents of 6"):
        check_graph(made)


def _table(width: int) -> Value:
    return Value("other", (50, width), "weight")


def _write(latent_dim: int) -> LatentWriteAttrs:
    return replace(WRITE, latent_dim=latent_dim)


def test_keys_and_values_are_not_latents() -> None:
    g = GraphBuilder()
    g.latent_write(rows(g, "latent", 8), rows(g, "key", 4), WRITE)
    y = g.attention(rows(g, "q", 24), AttentionAttrs(0, 2, 1, 12, 0.3))
    with pytest.raises(GraphError, match="1 KV heads of 12, expected latents of 8 and keys of 4"):
        g.build(g.select_rows(y))

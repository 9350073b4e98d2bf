"""The rule of each operator: its operands, the ranges of its attributes, the shape it gives.

The builder computes shapes by these rules and the checker verifies them; a rule is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from octavo.graph.graph import Kind, Value
from octavo.graph.ops import (
    ATTRS_OF,
    AttentionAttrs,
    Attrs,
    EmbedPositionsAttrs,
    ExpertsAttrs,
    HeadLinearAttrs,
    KvWriteAttrs,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    LayerNormAttrs,
    NoAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RouteAttrs,
    ScaleAttrs,
    Shape,
    SoftcapAttrs,
)


class RuleError(Exception):
    """A node breaks its operator's rule; the caller adds which node."""

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(f"got {got}, expected {expected}")


class Operand(Struct, frozen=True):
    """One place of an operator. Rank 2 operands of kind "result" are activations [rows, n]."""

    name: str
    rank: int
    kinds: tuple[Kind, ...]
    optional: bool = False


class Rule(Struct, frozen=True):
    """`shape` gets the operands' shapes (None where absent) and the attributes."""

    operands: tuple[Operand, ...]
    shape: Callable[[Sequence[Any], Any], Shape | None]


def _expect(holds: bool, got: str, expected: str) -> None:
    if not holds:
        raise RuleError(got, expected)


def _finite(name: str, value: float, *, positive: bool = True) -> None:
    ok = math.isfinite(value) and (value > 0 or not positive)
    _expect(ok, f"{name} {value}", f"a finite {name}" + (" above 0" if positive else ""))


def _per_step(name: str, shape: Shape) -> None:
    _expect(shape[0] == "T", f"{name} {list(shape)}", f"{name} [T, ...], one row per token")


def _heads(name: str, shape: Shape, heads: int, head_dim: int) -> None:
    _expect(
        heads > 0 and head_dim > 0 and shape[1] == heads * head_dim,
        f"{name} {list(shape)} with {heads} heads of {head_dim}",
        f"{name} [T, heads * head_dim], both above 0",
    )


def _embed(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    tokens, table = shapes
    _expect(tokens == ("T",), f"tokens {list(tokens)}", "tokens [T]")
    return ("T", table[1])


def _embed_positions(shapes: Sequence[Shape], attrs: EmbedPositionsAttrs) -> Shape:
    positions, table = shapes
    _expect(positions == ("T",), f"positions {list(positions)}", "positions [T]")
    fits = 0 <= attrs.offset < int(table[0])
    _expect(fits, f"offset {attrs.offset} in {table[0]} rows", "an offset inside the table")
    return ("T", table[1])


def _embed_types(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    types, table = shapes
    _expect(types == ("T",), f"types {list(types)}", "types [T]")
    return ("T", table[1])


def _linear(shapes: Sequence[Shape | None], attrs: NoAttrs) -> Shape:
    x, weight, bias = shapes
    assert x is not None
    assert weight is not None
    _expect(
        x[1] == weight[1], f"x {list(x)} and weight {list(weight)}", "x [M, K] and weight [N, K]"
    )
    if bias is not None:
        wanted = f"bias [{weight[0]}], one per row of the weight"
        _expect(bias[0] == weight[0], f"bias {list(bias)}", wanted)
    return (x[0], weight[0])


def _rms_norm(shapes: Sequence[Shape], attrs: RmsNormAttrs) -> Shape:
    x, weight = shapes
    divides = int(weight[0]) > 0 and int(x[1]) % int(weight[0]) == 0
    wanted = "features a multiple of the weight's size"
    _expect(divides, f"x {list(x)} and weight {list(weight)}", wanted)
    _finite("eps", attrs.eps)
    _expect(attrs.unit_offset in (0, 1), f"unit_offset {attrs.unit_offset}", "0 or 1")
    return x


def _layer_norm(shapes: Sequence[Shape | None], attrs: LayerNormAttrs) -> Shape:
    x, *stored = shapes
    assert x is not None
    for name, shape in zip(("weight", "bias"), stored, strict=True):
        fits = shape is None or shape[0] == x[1]
        _expect(fits, f"x {list(x)} and {name} {list(shape or ())}", f"x [M, D] and {name} [D]")
    _finite("eps", attrs.eps)
    return x


def _rope(shapes: Sequence[Shape], attrs: RopeAttrs) -> Shape:
    x, inv_freq = shapes
    _per_step("x", x)
    divides = attrs.head_dim > 0 and int(x[1]) % attrs.head_dim == 0
    _expect(divides, f"x {list(x)} with head_dim {attrs.head_dim}", "whole heads of head_dim")
    rotary = 2 * int(inv_freq[0])
    wanted = f"between 2 and head_dim {attrs.head_dim} rotated elements"
    _expect(2 <= rotary <= attrs.head_dim, f"inv_freq {list(inv_freq)}", wanted)
    _finite("magnitude", attrs.magnitude)
    return x


def _kv_write(shapes: Sequence[Shape], attrs: KvWriteAttrs) -> None:
    k, v = shapes
    _per_step("k", k)
    _expect(k == v, f"k {list(k)} and v {list(v)}", "k and v of one shape")
    _expect(attrs.layer >= 0, f"layer {attrs.layer}", "a layer of 0 or more")
    _heads("k", k, attrs.num_kv_heads, attrs.head_dim)


def _attention(shapes: Sequence[Shape | None], attrs: AttentionAttrs) -> Shape:
    q, sinks = shapes
    assert q is not None
    _per_step("q", q)
    _heads("q", q, attrs.num_heads, attrs.head_dim)
    shared = attrs.num_kv_heads > 0 and attrs.num_heads % attrs.num_kv_heads == 0
    wanted = "num_heads a multiple of num_kv_heads"
    _expect(shared, f"{attrs.num_heads} heads on {attrs.num_kv_heads} KV heads", wanted)
    _expect(attrs.layer >= 0, f"layer {attrs.layer}", "a layer of 0 or more")
    one_each = sinks is None or sinks[0] == attrs.num_heads
    _expect(one_each, f"sinks {list(sinks or ())}", f"sinks [{attrs.num_heads}], one a head")
    _finite("scale", attrs.scale)
    window = attrs.window
    _expect(window is None or window >= 1, f"window {window}", "None or at least 1 token")
    if attrs.softcap is not None:
        _finite("softcap", attrs.softcap)
    return q


def _head_linear(shapes: Sequence[Shape], attrs: HeadLinearAttrs) -> Shape:
    x, weight = shapes
    heads, rows = attrs.num_heads, int(weight[0])
    whole = heads > 0 and rows % heads == 0 and int(x[1]) == heads * int(weight[1])
    got = f"x {list(x)} and weight {list(weight)} with {heads} heads"
    _expect(whole, got, "x [M, heads * K] and weight [heads * N, K]")
    return (x[0], rows)


def _latent_write(shapes: Sequence[Shape], attrs: LatentWriteAttrs) -> None:
    latent, key = shapes
    _per_step("latent", latent)
    _per_step("key", key)
    _expect(attrs.layer >= 0, f"layer {attrs.layer}", "a layer of 0 or more")
    _heads("latent", latent, 1, attrs.latent_dim)
    _heads("key", key, 1, attrs.rope_dim)


def _latent_attention(shapes: Sequence[Shape], attrs: LatentAttentionAttrs) -> Shape:
    q, q_rope = shapes
    _per_step("q", q)
    _per_step("q_rope", q_rope)
    _heads("q", q, attrs.num_heads, attrs.latent_dim)
    _heads("q_rope", q_rope, attrs.num_heads, attrs.rope_dim)
    _expect(attrs.layer >= 0, f"layer {attrs.layer}", "a layer of 0 or more")
    _finite("scale", attrs.scale)
    return q


def _pairwise(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    a, b = shapes
    _expect(a == b, f"a {list(a)} and b {list(b)}", "two operands of one shape")
    return a


def _scale(shapes: Sequence[Shape], attrs: ScaleAttrs) -> Shape:
    _finite("factor", attrs.factor, positive=False)
    return shapes[0]


def _softcap(shapes: Sequence[Shape], attrs: SoftcapAttrs) -> Shape:
    _finite("cap", attrs.cap)
    return shapes[0]


def _route(shapes: Sequence[Shape | None], a: RouteAttrs) -> Shape:
    logits, bias = shapes
    assert logits is not None
    experts = int(logits[1])
    one_each = bias is None or bias[0] == experts
    _expect(one_each, f"bias {list(bias or ())}", f"bias [{experts}], one an expert")
    splits = a.num_groups >= 1 and experts % a.num_groups == 0
    _expect(splits, f"{experts} experts in {a.num_groups} groups", "groups of one size")
    _expect(
        1 <= a.top_groups <= a.num_groups,
        f"{a.top_groups} of {a.num_groups} groups",
        "at least one group and no more than there are",
    )
    within = experts // a.num_groups * a.top_groups
    wanted = f"between 1 and {within}, the experts of the chosen groups"
    _expect(1 <= a.top_k <= within, f"top_k {a.top_k}", wanted)
    pairs = a.group_score == "max" or a.num_groups == 1 or experts // a.num_groups >= 2
    _expect(pairs, "groups of one expert scored by two", "groups of two experts or more")
    _finite("scale", a.scale)
    return (logits[0], 2 * a.top_k)


def _experts(shapes: Sequence[Shape | None], attrs: ExpertsAttrs) -> Shape:
    x, routes, gate, up, down, *biases = shapes
    assert x is not None
    assert routes is not None
    assert gate is not None
    assert down is not None
    experts, hidden, features = gate
    _expect(x[1] == features, f"x {list(x)} and gate {list(gate)}", "x [M, D] and gate [E, F, D]")
    _expect(up == gate, f"up {list(up or ())}", f"{list(gate)}, as gate")
    turned = (experts, features, hidden)
    _expect(down == turned, f"down {list(down)}", f"{list(turned)}")
    pairs = routes[0] == x[0] and int(routes[1]) % 2 == 0
    _expect(pairs, f"routes {list(routes)}", f"routes [{x[0]}, 2k], ids and weights")
    fits = 2 <= int(routes[1]) <= 2 * int(experts)
    _expect(fits, f"routes {list(routes)} with {experts} experts", "k between 1 and E")
    for name, bias, size in zip(
        ("gate", "up", "down"), biases, (hidden, hidden, features), strict=True
    ):
        fits = bias is None or bias == (experts, size)
        _expect(fits, f"{name}_bias {list(bias or ())}", f"[{experts}, {size}]")
    _finite("alpha", attrs.alpha)
    _finite("limit", attrs.limit)
    return x


def _gate_rows(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    x, gate = shapes
    one = gate == (x[0], 1)
    _expect(one, f"x {list(x)} and gate {list(gate)}", "x [M, D] and gate [M, 1]")
    return x


def _same(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    return shapes[0]


def _select_rows(shapes: Sequence[Shape], attrs: NoAttrs) -> Shape:
    _per_step("x", shapes[0])
    return ("R", shapes[0][1])


_STORED: tuple[Kind, ...] = ("weight", "constant")


def _activation(name: str) -> Operand:
    return Operand(name, 2, ("result",))


def _stored(name: str, rank: int, *, optional: bool = False) -> Operand:
    return Operand(name, rank, _STORED, optional)


RULES: dict[Op, Rule] = {
    Op.EMBED: Rule((Operand("tokens", 1, ("input",)), _stored("table", 2)), _embed),
    Op.EMBED_POSITIONS: Rule(
        (Operand("positions", 1, ("input",)), _stored("table", 2)), _embed_positions
    ),
    Op.EMBED_TYPES: Rule((Operand("types", 1, ("input",)), _stored("table", 2)), _embed_types),
    Op.LINEAR: Rule(
        (_activation("x"), _stored("weight", 2), _stored("bias", 1, optional=True)), _linear
    ),
    Op.RMS_NORM: Rule((_activation("x"), _stored("weight", 1)), _rms_norm),
    Op.LAYER_NORM: Rule(
        (_activation("x"), _stored("weight", 1), _stored("bias", 1, optional=True)), _layer_norm
    ),
    Op.ROPE: Rule((_activation("x"), _stored("inv_freq", 1)), _rope),
    Op.KV_WRITE: Rule((_activation("k"), _activation("v")), _kv_write),
    Op.ATTENTION: Rule((_activation("q"), _stored("sinks", 1, optional=True)), _attention),
    Op.HEAD_LINEAR: Rule((_activation("x"), _stored("weight", 2)), _head_linear),
    Op.LATENT_WRITE: Rule((_activation("latent"), _activation("key")), _latent_write),
    Op.LATENT_ATTENTION: Rule((_activation("q"), _activation("q_rope")), _latent_attention),
    Op.ADD: Rule((_activation("a"), _activation("b")), _pairwise),
    Op.MUL: Rule((_activation("a"), _activation("b")), _pairwise),
    Op.SCALE: Rule((_activation("x"),), _scale),
    Op.SILU: Rule((_activation("x"),), _same),
    Op.GELU: Rule((_activation("x"),), _same),
    Op.GELU_ERF: Rule((_activation("x"),), _same),
    Op.RELU: Rule((_activation("x"),), _same),
    Op.TANH: Rule((_activation("x"),), _same),
    Op.SOFTCAP: Rule((_activation("x"),), _softcap),
    Op.ROUTE: Rule((_activation("logits"), _stored("bias", 1, optional=True)), _route),
    Op.EXPERTS: Rule(
        (
            _activation("x"),
            _activation("routes"),
            *(_stored(name, 3) for name in ("gate", "up", "down")),
            *(_stored(f"{name}_bias", 2, optional=True) for name in ("gate", "up", "down")),
        ),
        _experts,
    ),
    Op.GATE_ROWS: Rule((_activation("x"), _activation("gate")), _gate_rows),
    Op.SELECT_ROWS: Rule((_activation("x"),), _select_rows),
    Op.MEAN_ROWS: Rule((_activation("x"),), _select_rows),
}
"""One rule per operator; a test asserts that none is missing."""


def result_shape(op: Op, inputs: Sequence[Value | None], attrs: Attrs) -> Shape | None:
    """Shape an operator gives on these operands; None for a cache write. Raises RuleError."""
    rule = RULES[op]
    wanted = ATTRS_OF.get(op, NoAttrs)
    _expect(type(attrs) is wanted, f"attributes {attrs}", wanted.__name__)
    _check_operands(rule.operands, inputs)
    return rule.shape([value.shape if value else None for value in inputs], attrs)


def _check_operands(operands: Sequence[Operand], inputs: Sequence[Value | None]) -> None:
    names = ", ".join(o.name + ("?" if o.optional else "") for o in operands)
    _expect(len(inputs) == len(operands), f"{len(inputs)} operands", f"({names})")
    for operand, value in zip(operands, inputs, strict=True):
        if value is None:
            _expect(operand.optional, f"no {operand.name}", f"({names})")
        else:
            _check_operand(operand, value)


def _check_operand(operand: Operand, value: Value) -> None:
    what = f"{operand.name} '{value.name}'"
    kinds = " or ".join(operand.kinds)
    _expect(value.kind in operand.kinds, f"{what} of kind {value.kind}", kinds)
    sized = f"{what} {list(value.shape)}"
    _expect(len(value.shape) == operand.rank, sized, f"rank {operand.rank}")
    if value.kind == "result":
        _expect(value.shape[0] in ("T", "R"), sized, "rows T or R")
    fixed = value.shape[1:] if value.kind in ("result", "input") else value.shape
    whole = all(isinstance(size, int) and size > 0 for size in fixed)
    _expect(whole, sized, "known sizes above 0")

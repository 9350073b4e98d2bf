"""ONNX's own node cases on the reference backend: an outside opinion on what operators mean.

How a case is mapped:
    Add, Mul, Gelu (tanh), Swish      the elementwise operator on [1, all elements]
    RMSNormalization                  RMS_NORM; the normalised axes become one run of features
    Gemm, MatMul (2-D)                LINEAR with B transposed; a vector C is the bias
    Gather (axis 0)                   EMBED of the flattened rows
    RotaryEmbedding                   the reference's `rotate`, since the caches are random numbers
    Attention, causal                 one sequence per batch entry; past keys are earlier positions;
                                      query i of n stands at position past + i
    Attention, not causal             one sequence per query, which stands at the last position
    Attention, left window w          window w + 1 (ONNX does not count the query's own position)
    Attention, values and keys of different sizes: the shorter filled up with zeros
Left out: masks given as tensors, queries before the first position or behind the last key, right
windows, integer types, scaled Gemm, batched MatMul. Of several outputs the first is judged.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from octavo.backends import get_backend
from octavo.backends.reference import ops
from octavo.backends.testing import Layout, run_op
from octavo.graph import AttentionAttrs, Attrs, NoAttrs, Op, RmsNormAttrs, RopeAttrs

onnx_node = pytest.importorskip("onnx.backend.test.case.node", reason="the onnx package is missing")

MODULES = (
    "add",
    "attention",
    "gather",
    "gelu",
    "gemm",
    "matmul",
    "mul",
    "rmsnormalization",
    "rotaryembedding",
    "swish",
)
FEWEST = 78
"""Cases that must be mapped; a mapping that silently takes fewer fails."""


@dataclass(frozen=True)
class NodeCase:
    """One ONNX case: its operator, attributes, operands by name, and expected first output."""

    name: str
    op_type: str
    attributes: dict[str, Any]
    inputs: dict[str, np.ndarray]
    expected: np.ndarray


class UnmappedError(Exception):
    """The case asks for something that no operator here has; the message says what."""


def node_cases() -> Iterator[NodeCase]:
    from onnx import helper

    for module in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    for case in onnx_node._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type.lower() not in MODULES:
            continue  # the same case again, expanded into primitive operators
        node, (inputs, outputs) = nodes[0], case.data_sets[0]
        names = [name for name in node.input if name]
        yield NodeCase(
            case.name,
            node.op_type,
            {a.name: helper.get_attribute_value(a) for a in node.attribute},
            dict(zip(names, inputs, strict=True)),
            np.asarray(outputs[0]),
        )


def need(holds: bool, what: str) -> None:
    if not holds:
        raise UnmappedError(what)


def reference(op: Op, inputs: list[Any], attrs: Attrs, layout: Layout) -> np.ndarray:
    return run_op(get_backend("reference"), op, inputs, attrs, layout)


def elementwise(op: Op) -> Callable[[NodeCase], np.ndarray]:
    def run(case: NodeCase) -> np.ndarray:
        arrays = list(case.inputs.values())
        need(all(a.dtype == np.float32 for a in arrays), "integer types")
        need(len({a.shape for a in arrays}) == 1, "broadcasting")
        need(case.op_type != "Gelu" or "approximate" in case.attributes, "the exact Gelu")
        need(case.attributes.get("alpha", 1.0) == 1.0, "alpha")
        rows = [a.reshape(1, -1) for a in arrays]
        return reference(op, rows, NoAttrs(), Layout((1,))).reshape(arrays[0].shape)

    return run


def rms_norm(case: NodeCase) -> np.ndarray:
    x, weight = case.inputs["X"], case.inputs["W"]
    axis = case.attributes.get("axis", -1) % x.ndim
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    attrs = RmsNormAttrs(case.attributes.get("epsilon", 1e-5))
    inputs = [rows, weight.reshape(-1)]
    return reference(Op.RMS_NORM, inputs, attrs, Layout((len(rows),))).reshape(x.shape)


def gemm(case: NodeCase) -> np.ndarray:
    a, b, *rest = case.inputs.values()
    at = case.attributes
    need(at.get("alpha", 1.0) == at.get("beta", 1.0) == 1.0, "scaled products")
    a = a.T if at.get("transA") else a
    weight = b if at.get("transB") else b.T
    need(not rest or rest[0].shape == (1, len(weight)), "a bias that is not a row")
    bias = [rest[0].reshape(-1)] if rest else []
    return reference(Op.LINEAR, [a, weight, *bias], NoAttrs(), Layout((len(a),)))


def matmul(case: NodeCase) -> np.ndarray:
    a, b = case.inputs.values()
    need(a.ndim == b.ndim == 2, "batched products")
    return reference(Op.LINEAR, [a, b.T], NoAttrs(), Layout((len(a),)))


def gather(case: NodeCase) -> np.ndarray:
    data, indices = case.inputs["data"], case.inputs["indices"]
    need(case.attributes.get("axis", 0) == 0 and data.ndim > 1, "gathering other axes")
    inputs = [indices, data.reshape(len(data), -1)]
    rows = reference(Op.EMBED, inputs, NoAttrs(), Layout((len(indices),)))
    return rows.reshape(len(indices), *data.shape[1:])


def rotary(case: NodeCase) -> np.ndarray:
    x, cos, sin = (case.inputs[name] for name in ("input", "cos_cache", "sin_cache"))
    heads = by_heads(x, case.attributes.get("num_heads", 0))  # [B, H, S, D]
    if "position_ids" in case.inputs:
        positions = case.inputs["position_ids"]
        cos, sin = cos[positions], sin[positions]  # [B, S, pairs]
    attrs = RopeAttrs(heads.shape[-1], bool(case.attributes.get("interleaved", 0)))
    rows = heads.transpose(0, 2, 1, 3).reshape(heads.shape[0] * heads.shape[2], -1)
    pairs = cos.shape[-1]
    out = ops.rotate(rows, cos.reshape(-1, pairs), sin.reshape(-1, pairs), attrs)
    batch, count, length, dim = heads.shape
    return like(x, out.reshape(batch, length, count, dim).transpose(0, 2, 1, 3))


def by_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, H, S, D], from that or from [B, S, H*D]."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def like(x: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """The layout of x, for a result in [B, H, S, D]."""
    if x.ndim == 4:
        return heads
    batch, _, length, _ = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, length, -1)


@dataclass(frozen=True)
class Sequence:
    """Keys and values [length, Hkv, D] of one batch entry, and queries at some positions."""

    k: np.ndarray
    v: np.ndarray
    queries: dict[int, np.ndarray]  # position -> [H, D]


def attention(case: NodeCase) -> np.ndarray:
    at = case.attributes
    need("attn_mask" not in case.inputs, "a mask tensor")
    need(at.get("right_window_size", -1) == -1, "a right window")
    q = by_heads(case.inputs["Q"], at.get("q_num_heads", 0))
    k, v = (by_heads(case.inputs[name], at.get("kv_num_heads", 0)) for name in "KV")
    at = {"scale": q.shape[-1] ** -0.5, **at}
    size, wide = v.shape[-1], max(k.shape[-1], v.shape[-1])
    q, k, v = (filled(a, wide).transpose(0, 2, 1, 3) for a in (q, k, v))  # [B, S, H, wide]
    sequences = [s for b in range(len(q)) for s in sequences_of(case, q[b], k, v, b)]
    results = attend(sequences, q, k, at).reshape(q.shape)[..., :size]
    return like(case.inputs["Q"], results.transpose(0, 2, 1, 3))


def filled(array: np.ndarray, size: int) -> np.ndarray:
    """float32 with zeros appended to the last axis; scores and results do not change by them."""
    missing = size - array.shape[-1]
    return np.pad(array.astype(np.float32), [(0, 0)] * (array.ndim - 1) + [(0, missing)])


def sequences_of(
    case: NodeCase, q: np.ndarray, k: np.ndarray, v: np.ndarray, b: int
) -> Iterator[Sequence]:
    keys, values = k[b], v[b]
    if "past_key" in case.inputs:
        stored = (case.inputs[f"past_{name}"][b] for name in ("key", "value"))
        past = [filled(a, keys.shape[-1]).transpose(1, 0, 2) for a in stored]
        keys, values = np.concatenate([past[0], keys]), np.concatenate([past[1], values])
        first = len(past[0])
    elif "nonpad_kv_seqlen" in case.inputs:
        length = int(case.inputs["nonpad_kv_seqlen"][b])
        keys, values, first = keys[:length], values[:length], length - len(q)
        need(first >= 0, "queries before the first position")
    else:
        first = 0
    if case.attributes.get("is_causal"):
        need(first + len(q) <= len(keys), "queries behind the last key")
        yield Sequence(keys, values, {first + i: q[i] for i in range(len(q))})
    else:
        need(case.attributes.get("left_window_size", -1) == -1, "a window that is not causal")
        yield from (Sequence(keys, values, {len(keys) - 1: row}) for row in q)


def attend(
    sequences: list[Sequence], q: np.ndarray, k: np.ndarray, at: dict[str, Any]
) -> np.ndarray:
    """Results of all queries in order, [queries, H * D]."""
    left = at.get("left_window_size", -1)
    attrs = AttentionAttrs(
        layer=0,
        num_heads=q.shape[2],
        num_kv_heads=k.shape[2],
        head_dim=q.shape[-1],
        scale=at["scale"],
        window=None if left < 0 else left + 1,
        softcap=at.get("softcap") or None,
    )
    queries = [np.zeros((len(s.k), *q.shape[2:]), np.float32) for s in sequences]
    for rows, s in zip(queries, sequences, strict=True):
        for position, row in s.queries.items():
            rows[position] = row
    parts = [queries, [s.k for s in sequences], [s.v for s in sequences]]
    inputs = [np.concatenate(p).reshape(sum(map(len, p)), -1) for p in parts]
    layout = Layout(tuple(len(s.k) for s in sequences), block_size=4)
    out = reference(Op.ATTENTION, inputs, attrs, layout)
    starts = np.cumsum([0, *layout.lengths])
    rows = [start + p for start, s in zip(starts, sequences, strict=False) for p in s.queries]
    return out[rows]


MAPPINGS: dict[str, Callable[[NodeCase], np.ndarray]] = {
    "Add": elementwise(Op.ADD),
    "Mul": elementwise(Op.MUL),
    "Gelu": elementwise(Op.GELU),
    "Swish": elementwise(Op.SILU),
    "RMSNormalization": rms_norm,
    "Gemm": gemm,
    "MatMul": matmul,
    "Gather": gather,
    "RotaryEmbedding": rotary,
    "Attention": attention,
}


def tolerance(dtype: np.dtype) -> float:
    """ONNX computes half-precision cases in half precision."""
    return {"float32": 2e-6, "float16": 3e-3}.get(dtype.name, 3e-2)


def test_node_cases_agree(record_property: Callable[[str, object], None]) -> None:
    used, left_out = [], {}
    for case in node_cases():
        try:
            got = MAPPINGS[case.op_type](case)
        except UnmappedError as reason:
            left_out[case.name] = str(reason)
            continue
        expected = case.expected.astype(np.float32)
        np.testing.assert_allclose(
            got, expected, rtol=1e-5, atol=tolerance(case.expected.dtype), err_msg=case.name
        )
        used.append(case.name)
    record_property("used", len(used))
    record_property("left_out", len(left_out))
    assert len(used) >= FEWEST, f"{len(used)} cases used; left out: {left_out}"

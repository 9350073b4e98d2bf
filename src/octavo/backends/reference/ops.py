"""What each operator computes. Every other backend is judged by these functions.

Activations are float32 [rows, features]; stored operands come expanded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats, Ints
from octavo.graph import (
    AttentionAttrs,
    ExpertsAttrs,
    HeadLinearAttrs,
    LatentAttentionAttrs,
    LayerNormAttrs,
    NoAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RouteAttrs,
    ScaleAttrs,
)


def linear(x: Floats, weight: Floats, bias: Floats | None) -> Floats:
    """x[M, K] weight[N, K]^T + bias[N]."""
    y: Floats = x @ weight.T
    return y if bias is None else y + bias


def head_linear(x: Floats, weight: Floats, attrs: HeadLinearAttrs) -> Floats:
    """x[M, H*K] and weight[H*N, K]: each head by its own N rows -> [M, H*N]."""
    heads = x.reshape(len(x), attrs.num_heads, -1)
    own = weight.reshape(attrs.num_heads, -1, weight.shape[1])
    y: Floats = (heads.transpose(1, 0, 2) @ own.transpose(0, 2, 1)).transpose(1, 0, 2)
    return y.reshape(len(x), -1)


def rms_norm(x: Floats, weight: Floats, attrs: RmsNormAttrs) -> Floats:
    """Zhang and Sennrich 2019, on each run of len(weight) features."""
    runs = x.reshape(len(x), -1, len(weight))
    mean_square = np.mean(runs * runs, axis=-1, keepdims=True, dtype=np.float32)
    normed = runs / np.sqrt(mean_square + np.float32(attrs.eps))
    return (normed * (weight + np.float32(attrs.unit_offset))).reshape(x.shape)


def layer_norm(x: Floats, weight: Floats, bias: Floats | None, attrs: LayerNormAttrs) -> Floats:
    """Ba et al. 2016."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float32)
    variance = np.mean(centred * centred, axis=-1, keepdims=True, dtype=np.float32)
    y: Floats = centred / np.sqrt(variance + np.float32(attrs.eps)) * weight
    return y if bias is None else y + bias


def rope(x: Floats, inv_freq: Floats, positions: Ints, attrs: RopeAttrs) -> Floats:
    """Rotate pair i of each head by positions * inv_freq[i]; what lies behind the pairs stays."""
    angles = positions[:, None].astype(np.float64) * inv_freq
    cos = (np.cos(angles) * attrs.magnitude).astype(np.float32)
    sin = (np.sin(angles) * attrs.magnitude).astype(np.float32)
    return rotate(x, cos, sin, attrs)


def rotate(x: Floats, cos: Floats, sin: Floats, attrs: RopeAttrs) -> Floats:
    """Rotate the pairs of each head of x[T, H*head_dim] by cos and sin [T, pairs]."""
    heads = x.reshape(len(x), -1, attrs.head_dim)
    first, second = _pair_places(cos.shape[1], attrs.interleaved)
    a, b = heads[..., first], heads[..., second]
    cos, sin = cos[:, None, :], sin[:, None, :]
    out = heads.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out.reshape(x.shape)


def _pair_places(pairs: int, interleaved: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    index = np.arange(pairs)
    return (2 * index, 2 * index + 1) if interleaved else (index, index + pairs)


def attend(
    q: Floats,
    k: Floats,
    v: Floats,
    positions: Ints,
    attrs: AttentionAttrs,
    sinks: Floats | None = None,
) -> Floats:
    """One sequence: q[n, H*D] at `positions` over k, v [length, Hkv, D] -> [n, H*D]. sinks[H]."""
    heads = q.reshape(len(q), attrs.num_heads, attrs.head_dim)
    group = attrs.num_heads // attrs.num_kv_heads
    keys = np.repeat(k, group, axis=1).transpose(1, 2, 0)  # [H, D, length]
    values = np.repeat(v, group, axis=1).transpose(1, 0, 2)  # [H, length, D]
    scores = (heads.transpose(1, 0, 2) @ keys) * np.float32(attrs.scale)  # [H, n, length]
    if attrs.softcap is not None:
        scores = softcap(scores, attrs.softcap)
    seen = visible(positions, len(k), attrs.window, attrs.causal)
    scores = np.where(seen, scores, np.float32(-np.inf))
    if sinks is None:
        weights = softmax(scores)
    else:
        last = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
        weights = softmax(np.concatenate([scores, last], axis=2))[:, :, :-1]
    y: Floats = (weights @ values).transpose(1, 0, 2).reshape(q.shape)
    return y


def attend_latents(
    q: Floats, q_rope: Floats, rows: Floats, positions: Ints, attrs: LatentAttentionAttrs
) -> Floats:
    """One sequence: q[n, H*R] and q_rope[n, H*P] at `positions` over rows [length, R + P]."""
    parts = [part.reshape(len(q), attrs.num_heads, -1) for part in (q, q_rope)]
    heads = np.concatenate(parts, axis=2).transpose(1, 0, 2)  # [H, n, R + P]
    scores = (heads @ rows.T) * np.float32(attrs.scale)
    seen = visible(positions, len(rows), None)
    weights = softmax(np.where(seen, scores, np.float32(-np.inf)))
    y: Floats = (weights @ rows[:, : attrs.latent_dim]).transpose(1, 0, 2).reshape(q.shape)
    return y


def visible(
    positions: Ints, length: int, window: int | None, causal: bool = True
) -> NDArray[np.bool_]:
    """[n, length]: whether the query at positions[i] sees the key at j."""
    behind = positions[:, None] - np.arange(length)[None, :]
    seen: NDArray[np.bool_] = behind >= 0 if causal else np.full(behind.shape, True)
    return seen if window is None else seen & (abs(behind) < window)


def mean_rows(x: Floats, query_start: Ints, rows: Ints) -> Floats:
    """The mean row of each sequence that one of `rows` belongs to, [len(rows), D]."""
    sequences = np.searchsorted(query_start, rows, side="right") - 1
    spans = [x[query_start[s] : query_start[s + 1]] for s in sequences]
    return np.stack([span.mean(axis=0, dtype=np.float64) for span in spans]).astype(np.float32)


def softmax(scores: Floats) -> Floats:
    """Along the last axis; -inf gets weight 0."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Floats = shifted / shifted.sum(axis=-1, keepdims=True, dtype=np.float32)
    return result


def softcap(x: Floats, cap: float) -> Floats:
    """cap * tanh(x / cap)."""
    result: Floats = np.float32(cap) * np.tanh(x / np.float32(cap))
    return result


def sigmoid(x: Floats) -> Floats:
    """By tanh, so that no exponential overflows."""
    half = np.float32(0.5)
    result: Floats = half + half * np.tanh(half * x)
    return result


def silu(x: Floats) -> Floats:
    """x * sigmoid(x)."""
    result: Floats = x * sigmoid(x)
    return result


def gelu(x: Floats) -> Floats:
    """Tanh approximation (Hendrycks and Gimpel 2016)."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    result: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return result


def gelu_erf(x: Floats) -> Floats:
    """x * Phi(x) (Hendrycks and Gimpel 2016), in float64."""
    phi = 0.5 + 0.5 * _erf(x.astype(np.float64) * math.sqrt(0.5))
    result: Floats = (x * phi).astype(np.float32)
    return result


_erf = np.vectorize(math.erf, otypes=[np.float64])


def route(logits: Floats, bias: Floats | None, attrs: RouteAttrs) -> Floats:
    """logits[M, E] -> ids of the chosen experts [M, k], then their weights [M, k]."""
    scores = _expert_scores(logits, attrs)
    choice = scores if bias is None else scores + bias
    choice = np.where(_open_to(choice, attrs), choice, np.float32(-np.inf))
    ids = np.argsort(-choice, axis=1, kind="stable")[:, : attrs.top_k]
    weights = np.take_along_axis(scores, ids, axis=1)
    if attrs.scores == "chosen_softmax":
        weights = softmax(weights)
    if attrs.normalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + np.float32(1e-20))
    return np.concatenate([ids.astype(np.float32), weights * np.float32(attrs.scale)], axis=1)


def _expert_scores(logits: Floats, attrs: RouteAttrs) -> Floats:
    if attrs.scores == "softmax":
        return softmax(logits)
    return sigmoid(logits) if attrs.scores == "sigmoid" else logits


def _open_to(choice: Floats, attrs: RouteAttrs) -> NDArray[np.bool_]:
    """[M, E]: whether an expert's group is among the best (DeepSeek V2, V3)."""
    rows, experts = choice.shape
    size = experts // attrs.num_groups
    groups = np.sort(choice.reshape(rows, attrs.num_groups, size), axis=2)
    score = groups[:, :, -1] if attrs.group_score == "max" else groups[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, : attrs.top_groups]
    is_open = np.zeros((rows, attrs.num_groups), np.bool_)
    np.put_along_axis(is_open, best, True, axis=1)
    return np.repeat(is_open, size, axis=1)


def experts(x: list[Any], attrs: ExpertsAttrs) -> Floats:
    """Each row through its experts; results added in the order of choice."""
    rows, routes, gate, up, down, *biases = x
    num_chosen = routes.shape[1] // 2
    ids = routes[:, :num_chosen].astype(np.int64)
    out: Floats = np.zeros_like(rows)
    for rank in range(num_chosen):
        for e in np.unique(ids[:, rank]):
            at = np.flatnonzero(ids[:, rank] == e)
            gate_bias, up_bias, down_bias = (None if b is None else b[e] for b in biases)
            g = linear(rows[at], gate[e], gate_bias)
            h = gated(g, linear(rows[at], up[e], up_bias), attrs)
            y = linear(h, down[e], down_bias)
            out[at] += routes[at, num_chosen + rank, None] * y
    return out


def gated(gate: Floats, up: Floats, attrs: ExpertsAttrs) -> Floats:
    """What an expert's gate lets through of its `up`."""
    y: Floats
    if attrs.activation != "clamped_swiglu":
        y = {"silu": silu, "gelu": gelu, "gelu_erf": gelu_erf}[attrs.activation](gate) * up
        return y
    limit = np.float32(attrs.limit)
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    y = g * sigmoid(np.float32(attrs.alpha) * g) * (u + 1)
    return y


def _add(x: list[Floats], attrs: NoAttrs) -> Floats:
    return x[0] + x[1]


def _mul(x: list[Floats], attrs: NoAttrs) -> Floats:
    return x[0] * x[1]


def _scale(x: list[Floats], attrs: ScaleAttrs) -> Floats:
    return x[0] * np.float32(attrs.factor)


SIMPLE: dict[Op, Callable[[list[Any], Any], Floats]] = {
    Op.LINEAR: lambda x, attrs: linear(x[0], x[1], x[2]),
    Op.HEAD_LINEAR: lambda x, attrs: head_linear(x[0], x[1], attrs),
    Op.RMS_NORM: lambda x, attrs: rms_norm(x[0], x[1], attrs),
    Op.LAYER_NORM: lambda x, attrs: layer_norm(x[0], x[1], x[2], attrs),
    Op.ADD: _add,
    Op.MUL: _mul,
    Op.SCALE: _scale,
    Op.SILU: lambda x, attrs: silu(x[0]),
    Op.GELU: lambda x, attrs: gelu(x[0]),
    Op.GELU_ERF: lambda x, attrs: gelu_erf(x[0]),
    Op.RELU: lambda x, attrs: np.maximum(x[0], np.float32(0)),
    Op.TANH: lambda x, attrs: np.tanh(x[0]),
    Op.ROUTE: lambda x, attrs: route(x[0], x[1], attrs),
    Op.EXPERTS: experts,
    Op.GATE_ROWS: lambda x, attrs: x[0] * sigmoid(x[1]),
    Op.SOFTCAP: lambda x, attrs: softcap(x[0], attrs.cap),
}
"""Operators that need nothing but their operands; the executable does the others itself."""

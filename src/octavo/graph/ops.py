"""The operator set: every operator a graph may hold, its operands, attributes and shape rule.

Nothing else enumerates operators. `backends/reference` defines what each computes. Symbolic sizes:
T tokens in the step, S sequences, R rows that need logits. Activations are float32 [T, features].
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

Dim: TypeAlias = int | str
"""A known size, or the name of a symbolic one: "T", "R"."""
Shape: TypeAlias = tuple[Dim, ...]


class Op(Enum):
    # Tables and products
    EMBED = "embed"  # tokens[T], table[V, D] -> [T, D]
    EMBED_POSITIONS = "embed_positions"  # positions[T], table[P, D] -> [T, D]
    EMBED_TYPES = "embed_types"  # types[T], table[Y, D] -> [T, D]
    LINEAR = "linear"  # x[M, K], weight[N, K], bias[N]? -> [M, N]
    HEAD_LINEAR = "head_linear"  # x[M, H*K], weight[H*N, K] -> [M, H*N]; head by head
    # Normalisation
    RMS_NORM = "rms_norm"  # x[M, G*D], weight[D] -> same; each run of D elements on its own
    LAYER_NORM = "layer_norm"  # x[M, D], weight[D], bias[D]? -> same
    # Position and attention
    ROPE = "rope"  # x[T, H*head_dim], inv_freq[rotary/2] -> same
    KV_WRITE = "kv_write"  # k[T, Hkv*head_dim], v[same] -> nothing; writes the paged cache
    ATTENTION = "attention"  # q[T, H*head_dim], sinks[H]? -> q's; reads the cache of its layer
    LATENT_WRITE = "latent_write"  # latent[T, R], key[T, P] -> nothing; writes the paged cache
    LATENT_ATTENTION = "latent_attention"  # q[T, H*R], q_rope[T, H*P] -> [T, H*R]; reads it
    # Elementwise
    ADD = "add"  # a, b -> same
    MUL = "mul"  # a, b -> same
    SCALE = "scale"  # x -> x * factor
    SILU = "silu"  # x -> x * sigmoid(x)
    GELU = "gelu"  # x -> tanh approximation of x * Phi(x)
    GELU_ERF = "gelu_erf"  # x -> x * Phi(x), exactly
    RELU = "relu"  # x -> max(x, 0)
    TANH = "tanh"  # x -> tanh(x)
    SOFTCAP = "softcap"  # x -> cap * tanh(x / cap)
    # Mixtures of experts: E experts of width F, of which each token gets k
    ROUTE = "route"  # logits[M, E], bias[E]? -> [M, 2k]: ids of the chosen, then their weights
    EXPERTS = "experts"  # x[M, D], routes[M, 2k], gate, up, down, a bias? of each -> [M, D]
    GATE_ROWS = "gate_rows"  # x[M, D], gate[M, 1] -> x * sigmoid(gate)
    # Rows
    SELECT_ROWS = "select_rows"  # x[T, D] -> [R, D]: the rows that need logits
    MEAN_ROWS = "mean_rows"  # x[T, D] -> [R, D]: of such a row's sequence, the mean in this step


class NoAttrs(Struct, frozen=True):
    """For operators that take none."""


class RmsNormAttrs(Struct, frozen=True):
    """y = x / sqrt(mean(x^2) + eps) * (weight + unit_offset); unit_offset is 0 or 1."""

    eps: float
    unit_offset: float = 0.0


class LayerNormAttrs(Struct, frozen=True):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias (Ba et al. 2016)."""

    eps: float


class EmbedPositionsAttrs(Struct, frozen=True):
    """Row of position p: table[p + offset]."""

    offset: int = 0


class RopeAttrs(Struct, frozen=True):
    """Rotary position embedding (Su et al. 2021) on the first 2*len(inv_freq) of each head.

    interleaved: pairs are (2i, 2i+1), GPT-J style; else (i, i + rotary/2), NeoX style.
    magnitude: multiplies sin and cos (YaRN's attention factor), 1 when unused.
    """

    head_dim: int
    interleaved: bool = False
    magnitude: float = 1.0


class KvWriteAttrs(Struct, frozen=True):
    layer: int
    num_kv_heads: int
    head_dim: int


class AttentionAttrs(Struct, frozen=True):
    """softmax(scale * q k^T + mask) v over the sequence's cached tokens, the new included.

    causal: a query at position p sees keys up to p; else those behind it too, and every sequence
    must come whole in one step. window: p sees keys in (p - window, p], or (p - window, p + window)
    where attention is not causal; None sees all.
    softcap: scores become softcap * tanh(scores / softcap); None leaves them.
    sinks (an operand): one more score a head, whose key has no value: it only takes weight.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    causal: bool = True


class HeadLinearAttrs(Struct, frozen=True):
    """Head h of a row times rows h*N to (h+1)*N of the weight: H products side by side."""

    num_heads: int


class LatentWriteAttrs(Struct, frozen=True):
    """A token's row in the cache is its latent, then its rotated key; all heads share it."""

    layer: int
    latent_dim: int
    rope_dim: int


class LatentAttentionAttrs(Struct, frozen=True):
    """Multi-head latent attention with its up-projections absorbed into q and the output
    (DeepSeek-AI 2024, section 2.1): the latents are keys and values of every head.

    out[h] = softmax(scale * (q[h] . latent + q_rope[h] . key) + causal mask) latent.
    """

    layer: int
    num_heads: int
    latent_dim: int
    rope_dim: int
    scale: float


class ScaleAttrs(Struct, frozen=True):
    factor: float


class SoftcapAttrs(Struct, frozen=True):
    cap: float


class RouteAttrs(Struct, frozen=True):
    """Which experts a row goes to, best first (ties to the lower id), and how much each counts.

    scores: what a logit becomes. "softmax" and "sigmoid" are taken over all experts; by
        "chosen_softmax" experts are chosen by their logits and softmax is taken over the chosen.
    bias (an operand): added to the scores for the choice alone; weights are the scores without it.
    num_groups, top_groups: experts lie in num_groups runs of one size, and only the top_groups best
        runs are chosen from. group_score: a run counts as its best score ("max", DeepSeek V2) or
        as the sum of its two best ("top2", DeepSeek V3), bias included.
    normalize: the weights of the chosen are divided by their sum. scale: then multiplied by this.
    """

    top_k: int
    scores: Literal["softmax", "sigmoid", "chosen_softmax"] = "softmax"
    normalize: bool = False
    scale: float = 1.0
    num_groups: int = 1
    top_groups: int = 1
    group_score: Literal["max", "top2"] = "max"


class ExpertsAttrs(Struct, frozen=True):
    """sum over the row's experts of weight * (down(act(gate(x)) * up(x))), in the order of choice.

    Operands: gate and up [E, F, D], down [E, D, F], biases [E, F], [E, F], [E, D].
    activation: "silu", "gelu" (tanh), "gelu_erf", or gpt-oss's "clamped_swiglu": with
        g = min(gate, limit) and u = clamp(up, -limit, limit), g * sigmoid(alpha * g) * (u + 1).
    """

    activation: Literal["silu", "gelu", "gelu_erf", "clamped_swiglu"] = "silu"
    alpha: float = 1.0
    limit: float = 1.0


Attrs: TypeAlias = (
    NoAttrs
    | RmsNormAttrs
    | LayerNormAttrs
    | EmbedPositionsAttrs
    | RopeAttrs
    | KvWriteAttrs
    | AttentionAttrs
    | HeadLinearAttrs
    | LatentWriteAttrs
    | LatentAttentionAttrs
    | ScaleAttrs
    | SoftcapAttrs
    | RouteAttrs
    | ExpertsAttrs
)

ATTRS_OF: dict[Op, type[Attrs]] = {
    Op.RMS_NORM: RmsNormAttrs,
    Op.LAYER_NORM: LayerNormAttrs,
    Op.EMBED_POSITIONS: EmbedPositionsAttrs,
    Op.ROPE: RopeAttrs,
    Op.KV_WRITE: KvWriteAttrs,
    Op.ATTENTION: AttentionAttrs,
    Op.HEAD_LINEAR: HeadLinearAttrs,
    Op.LATENT_WRITE: LatentWriteAttrs,
    Op.LATENT_ATTENTION: LatentAttentionAttrs,
    Op.SCALE: ScaleAttrs,
    Op.SOFTCAP: SoftcapAttrs,
    Op.ROUTE: RouteAttrs,
    Op.EXPERTS: ExpertsAttrs,
}
"""Attribute type per operator; those absent take NoAttrs."""

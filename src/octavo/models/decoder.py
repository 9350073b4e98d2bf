"""What decoder families share: asking for weights, and the blocks that most of them have.

A family's file says which blocks it has and in which order; this file says how each is built from
operators. Tensor names are the canonical ones (GGUF's).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.graph import (
    AttentionAttrs,
    Graph,
    GraphBuilder,
    KvWriteAttrs,
    RopeAttrs,
    Value,
)
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.rope import inverse_frequencies, magnitude
from octavo.weights import Tensor, dequantize


class WeightAccount:
    """Which tensors a graph asked for; at the end, all that is wrong is told in one message."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()
        self._missing: list[str] = []
        self._misshapen: list[str] = []

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""
        return name in self._tensors

    def take(self, name: str, shape: tuple[int, ...]) -> None:
        """Note that the graph needs this tensor in this shape."""
        if name in self._taken:
            return
        self._taken.add(name)
        tensor = self._tensors.get(name)
        if tensor is None:
            self._missing.append(name)
        elif tensor.shape != shape:
            place = f" in {tensor.home}" if tensor.home else ""
            got = f"{name} {list(tensor.shape)}"
            self._misshapen.append(f"{got} (expected {list(shape)}){place}")

    def settle(self, model: str) -> None:
        """Raise FormatError listing every missing, misshapen and unexpected tensor, if any."""
        faults = {
            "missing": _grouped(self._missing),
            "of a wrong shape": self._misshapen,
            "unexpected": self._unexpected(),
        }
        told = [f"{kind}: {', '.join(names)}" for kind, names in faults.items() if names]
        if told:
            raise FormatError(
                f"{model}: its tensors do not fit its configuration; {'; '.join(told)}. "
                "The file is incomplete or of another model."
            )

    def _unexpected(self) -> list[str]:
        """What no one asked for; where it is few, each with its shape and the file it is from."""
        names = sorted(set(self._tensors) - self._taken)
        if len(names) > _TOLD:
            return _grouped(names)
        tensors = [self._tensors[name] for name in names]
        places = [f" in {tensor.home}" if tensor.home else "" for tensor in tensors]
        return [
            f"{name} {list(tensor.shape)}{place}"
            for name, tensor, place in zip(names, tensors, places, strict=True)
        ]


_TOLD = 4
"""Unexpected tensors of which each is told in full."""


def _grouped(names: Iterable[str]) -> list[str]:
    """blk.0.x, blk.1.x, blk.2.x -> blk.{0-2}.x, so that a message stays readable."""
    layers: dict[str, list[int]] = {}
    for name in names:
        found = re.match(r"blk\.(\d+)\.(.+)", name)
        layers.setdefault(found[2] if found else name, []).extend([int(found[1])] if found else [])
    return [f"blk.{_ranges(ns)}.{tail}" if ns else tail for tail, ns in layers.items()]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return text if text.isdigit() else f"{{{text}}}"


class Rotary(Struct, frozen=True):
    """Frequencies of one kind of layer, as a constant of the graph, and how to apply them."""

    inv_freq: Value
    attrs: RopeAttrs


class Decoder:
    """Builds one decoder graph. Sizes come from the config, names from the current layer."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config = config
        self.graph = GraphBuilder()
        self._tensors = tensors
        self._weights = WeightAccount(tensors)
        self._layer = 0

    def layers(self) -> Iterator[int]:
        """Go through the layers; what is built inside the loop belongs to the current one."""
        for layer in range(self.config.num_layers):
            self._layer = layer
            with self.graph.scope(f"blk.{layer}"):
                yield layer

    def has(self, name: str) -> bool:
        """Whether the current layer has a tensor of this name."""
        return self._weights.has(f"blk.{self._layer}.{name}")

    def weight(self, name: str, *shape: int) -> Value:
        """A required tensor."""
        self._weights.take(name, shape)
        return self.graph.weight(name, shape)

    def rotary(self, name: str, rope: RopeConfig, factors: str | None = None) -> Rotary:
        """Constants for a kind of layer; `factors` names a tensor that divides the frequencies."""
        divisors = self._read(factors, rope.rotary_dim // 2) if factors else None
        if rope.scaling == "longrope":
            divisors = self._longrope_factors(rope)
        inv_freq = self.graph.constant(name, inverse_frequencies(rope, divisors))
        attrs = RopeAttrs(self.config.head_dim, rope.interleaved, magnitude(rope))
        return Rotary(inv_freq, attrs)

    def embed(self) -> Value:
        """Rows of the embedding table, scaled where the family does so."""
        c = self.config
        x = self.graph.embed(self._embedding())
        return x if c.embedding_scale == 1.0 else self.graph.scale(x, c.embedding_scale)

    def norm(self, x: Value, name: str, size: int | None = None) -> Value:
        """Norm by the layer's weight of this name; size: of its rows, if not the hidden size."""
        size = size or self.config.hidden_size
        return self._norm(x, f"blk.{self._layer}.{name}.weight", size, name)

    def project(self, x: Value, name: str, size: int) -> Value:
        """x times the layer's weight of this name; with a bias where the file has one."""
        return self._project(x, name, size, None)

    def attention(
        self,
        x: Value,
        rotary: Rotary | None,
        *,
        biased: bool | None = False,
        qk_norm: Literal["head", "full"] | None = None,
        sinks: bool = False,
        sub_norm: str | None = None,
    ) -> Value:
        """Projections, rotation, cache write, attention and output projection.

        rotary: None leaves positions out. biased: whether q, k and v have biases; None takes them
        where the file has them. qk_norm: RMS norm of queries and keys, each head on its own or over
        all heads together. sinks: whether each head has one. sub_norm: the norm before the output
        projection, where there is one.
        """
        c, g = self.config, self.graph
        q = self._project(x, "attn_q", c.num_heads * c.head_dim, biased)
        k = self._project(x, "attn_k", c.num_kv_heads * c.head_dim, biased)
        v = self._project(x, "attn_v", c.num_kv_heads * c.head_dim, biased)
        if qk_norm is not None:
            one = c.head_dim if qk_norm == "head" else None
            q, k = self._head_norm(q, "attn_q_norm", one), self._head_norm(k, "attn_k_norm", one)
        if rotary is not None:
            q = g.rope(q, rotary.inv_freq, rotary.attrs, name="q_rope")
            k = g.rope(k, rotary.inv_freq, rotary.attrs, name="k_rope")
        g.kv_write(k, v, KvWriteAttrs(self._layer, c.num_kv_heads, c.head_dim))
        taking = self.weight(f"blk.{self._layer}.attn_sinks.weight", c.num_heads) if sinks else None
        y = g.attention(q, self._attention_attrs(), taking)
        if sub_norm is not None:
            y = self.norm(y, sub_norm, c.num_heads * c.head_dim)
        return self._project(y, "attn_output", c.hidden_size, None if biased is None else False)

    def gated_mlp(
        self, x: Value, *, biased: bool | None = False, sub_norm: str | None = None
    ) -> Value:
        """down(activation(gate(x)) * up(x)); sub_norm: the norm before down, where there is one."""
        c, g = self.config, self.graph
        gate = self._project(x, "ffn_gate", c.intermediate_size, biased)
        up = self._project(x, "ffn_up", c.intermediate_size, biased)
        y = g.mul(self._active(gate), up)
        if sub_norm is not None:
            y = self.norm(y, sub_norm, c.intermediate_size)
        return self._project(y, "ffn_down", c.hidden_size, biased)

    def mixture(self, x: Value, *, biased: bool = False) -> Value:
        """A router's choice of experts, each a gated MLP; besides them the shared ones, if there
        are any, multiplied by a gate of their own where the file has one. biased: whether router
        and experts have biases."""
        c, g = self.config, self.graph
        m = c.mixture
        assert m is not None
        shared = self._shared_experts(x, m.shared_size) if m.shared_size else None
        logits = self._project(x, "ffn_gate_inp", m.num_experts, biased)
        choice = f"blk.{self._layer}.exp_probs_b.bias"
        bias = self.weight(choice, m.num_experts) if self._weights.has(choice) else None
        routes = g.route(logits, bias, m.routing)
        sizes = (m.hidden_size, m.hidden_size, c.hidden_size)
        parts = [f"blk.{self._layer}.ffn_{part}_exps" for part in ("gate", "up", "down")]
        gate, up, down = (
            self.weight(f"{part}.weight", m.num_experts, size, c.hidden_size + m.hidden_size - size)
            for part, size in zip(parts, sizes, strict=True)
        )
        gate_bias, up_bias, down_bias = (
            self.weight(f"{part}.bias", m.num_experts, size) if biased else None
            for part, size in zip(parts, sizes, strict=True)
        )
        weights, biases = (gate, up, down), (gate_bias, up_bias, down_bias)
        y = g.experts(x, routes, weights, biases, m.experts)
        return y if shared is None else g.add(shared, y, name="with_shared")

    def mixture_or_mlp(self, x: Value, layer: int) -> Value:
        """Experts in layers that have them, a gated MLP in the others; biases where the file has
        them."""
        mixture = self.config.mixture
        has_experts = mixture is not None and mixture.in_layer(layer)
        return self.mixture(x) if has_experts else self.gated_mlp(x, biased=None)

    def _shared_experts(self, x: Value, size: int) -> Value:
        g = self.graph
        gate = self._project(x, "ffn_gate_shexp", size, False)
        up = self._project(x, "ffn_up_shexp", size, False)
        hidden = g.mul(self._active(gate), up)
        y = self._project(hidden, "ffn_down_shexp", self.config.hidden_size, False)
        if not self._weights.has(f"blk.{self._layer}.ffn_gate_inp_shexp.weight"):
            return y
        return g.gate_rows(y, self._project(x, "ffn_gate_inp_shexp", 1, False))

    def mlp(self, x: Value, *, biased: bool | None = None) -> Value:
        """down(activation(up(x))); biases where the file has them."""
        c = self.config
        up = self._project(x, "ffn_up", c.intermediate_size, biased)
        return self._project(self._active(up), "ffn_down", c.hidden_size, biased)

    def embed_positions(self, offset: int = 0) -> Value:
        """Rows of a learned table, one a position; it may have more than are served."""
        stored = self._tensors.get("position_embd.weight")
        rows = self.config.context_length + offset
        rows = max(rows, stored.shape[0]) if stored is not None and stored.shape else rows
        table = self.weight("position_embd.weight", rows, self.config.hidden_size)
        return self.graph.embed_positions(table, offset)

    def add(self, residual: Value, branch: Value) -> Value:
        """The residual stream plus a block's result, scaled where the family does so."""
        scale = self.config.residual_scale
        if scale != 1.0:
            branch = self.graph.scale(branch, scale, name="branch")
        return self.graph.add(residual, branch, name="residual")

    def finish(self, x: Value) -> Graph:
        """Final norm and head on the wanted rows only; checks tensors, then the graph."""
        c, g = self.config, self.graph
        x = self._norm(g.select_rows(x), "output_norm.weight", c.hidden_size, "output_norm")
        tied = not self._weights.has("output.weight")
        head = self._embedding() if tied else self.weight("output.weight", *self._table_shape())
        logits = g.linear(x, head, name="logits")
        if c.logit_scale != 1.0:
            logits = g.scale(logits, c.logit_scale, name="scaled_logits")
        if c.logit_softcap is not None:
            logits = g.softcap(logits, c.logit_softcap)
        self._weights.settle(c.name)
        return g.build(logits)

    def _table_shape(self) -> tuple[int, int]:
        return (self.config.vocab_size, self.config.hidden_size)

    def _embedding(self) -> Value:
        return self.weight("token_embd.weight", *self._table_shape())

    def _norm(self, x: Value, weight: str, size: int, name: str) -> Value:
        c = self.config
        stored = self.weight(weight, size)
        if c.norm_kind == "layer":
            biased = self._weights.has(bias := weight.removesuffix("weight") + "bias")
            shift = self.weight(bias, size) if biased else None
            return self.graph.layer_norm(x, stored, shift, c.norm_eps, name=name)
        return self.graph.rms_norm(x, stored, c.norm_eps, c.norm_unit_offset, name=name)

    def _active(self, x: Value) -> Value:
        """By the config's activation."""
        g = self.graph
        if self.config.activation == "relu2":
            positive = g.relu(x)
            return g.mul(positive, positive)
        by_name = {"gelu": g.gelu, "gelu_erf": g.gelu_erf, "relu": g.relu}
        return by_name.get(self.config.activation, g.silu)(x)

    def _head_norm(self, x: Value, name: str, size: int | None) -> Value:
        size = size or int(x.shape[1])
        return self._norm(x, f"blk.{self._layer}.{name}.weight", size, name)

    def _project(self, x: Value, name: str, size: int, biased: bool | None) -> Value:
        full = f"blk.{self._layer}.{name}"
        weight = self.weight(f"{full}.weight", size, int(x.shape[1]))
        wanted = self._weights.has(f"{full}.bias") if biased is None else biased
        bias = self.weight(f"{full}.bias", size) if wanted else None
        return self.graph.linear(x, weight, bias, name=name)

    def _attention_attrs(self) -> AttentionAttrs:
        c = self.config
        return AttentionAttrs(
            layer=self._layer,
            num_heads=c.num_heads,
            num_kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5 if c.attention_scale is None else c.attention_scale,
            window=c.window_of(self._layer),
            softcap=c.attention_softcap,
            causal=c.encoder is None,
        )

    def _longrope_factors(self, rope: RopeConfig) -> NDArray[np.float32] | None:
        """The set for the context that is served: short ones up to the trained context."""
        size = rope.rotary_dim // 2
        stored = {
            kind: self._read(f"rope_factors_{kind}.weight", size) for kind in ("short", "long")
        }
        stretched = self.config.context_length > rope.params["original_context"]
        listed = rope.long_factors if stretched else rope.short_factors
        found = stored["long" if stretched else "short"]
        return np.array(listed, dtype=np.float32) if listed else found

    def _read(self, name: str, size: int) -> NDArray[np.float32] | None:
        """A small tensor's numbers, or None where the file lacks it or its shape is wrong."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        self._weights.take(name, (size,))
        if tensor.shape != (size,):
            return None
        divisors = dequantize(tensor)
        if not (np.isfinite(divisors) & (divisors > 0)).all():
            got = f"{divisors.min()} to {divisors.max()}"
            place = tensor.home or f"{self.config.name}: '{name}'"
            raise FormatError(f"{place}: got {got}, expected all above 0")
        return divisors

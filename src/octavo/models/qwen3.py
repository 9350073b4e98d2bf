"""Qwen3: Qwen2's shape without biases, with q/k norms of each head."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.weights.tensor import Tensor


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention with head norms and gated MLP."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        y = d.attention(d.norm(x, "attn_norm"), rotary, biased=None, qk_norm="head")
        x = d.add(x, y)
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

"""StarCoder2: layer norms, biases everywhere, an MLP without gate, often a sliding window."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """The window stands under one key in either format."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    window = source.size(key) if source.has(key) else None
    activation = "gelu" if source.is_gguf else config.activation
    return replace(config, sliding_window=window, activation=activation)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and MLP."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None))
        x = d.add(x, d.mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

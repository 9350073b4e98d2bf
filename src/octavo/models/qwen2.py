"""Qwen2 and Qwen2.5: Llama's shape with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """config.json may let the upper layers slide; GGUF files never do."""
    if source.is_gguf or not source.flag("use_sliding_window"):
        return config
    sliding = layer_types(source, config.num_layers)
    if sliding is None:
        first = source.size("max_window_layers", config.num_layers)
        sliding = tuple(layer >= first for layer in range(config.num_layers))
    return replace(config, sliding_window=source.size("sliding_window"), sliding_layers=sliding)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention with biases and gated MLP."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=True))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

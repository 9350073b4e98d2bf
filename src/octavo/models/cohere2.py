"""Command R7B and Command A (Cohere 2): attention and MLP side by side after one layer norm; layers
that see everything do not rotate, the others slide."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_PATTERN = 4
"""Every fourth layer sees everything."""


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Logits have a factor; pairs are interleaved in either format."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    named = None if source.is_gguf else layer_types(source, config.num_layers)
    sliding = named or tuple((i + 1) % _PATTERN != 0 for i in range(config.num_layers))
    return replace(
        config,
        rope=replace(config.rope, interleaved=True),
        sliding_window=source.size(key),
        sliding_layers=sliding,
        ropeless_layers=tuple(not slides for slides in sliding),
        logit_scale=source.number("logit_scale", 1.0),
    )


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """x + attention(norm(x)) + mlp(norm(x))."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for layer in d.layers():
        normed = d.norm(x, "attn_norm")
        turned = rotary if config.rotates(layer) else None
        x = d.add(x, d.attention(normed, turned, biased=None))
        x = d.add(x, d.gated_mlp(normed))
    return d.finish(x)

"""OLMo 2 and 3, EXAONE 4: norms after the blocks only, and on queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_EXAONE_PATTERN = 4
"""Every fourth layer of the large EXAONE 4 sees everything and does not rotate."""


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """OLMo 3 slides in three of four layers; OLMo 2 never."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    if not source.has(key):
        return config
    named = None if source.is_gguf else layer_types(source, config.num_layers)
    sliding = named or tuple((i + 1) % 4 != 0 for i in range(config.num_layers))
    return replace(config, sliding_window=source.size(key), sliding_layers=sliding)


def adjust_exaone4(config: ModelConfig, source: Source) -> ModelConfig:
    """Where some layers slide, those that see everything do not rotate."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    if not source.has(key):
        return config
    named = None if source.is_gguf else layer_types(source, config.num_layers)
    sliding = named or tuple((i + 1) % _EXAONE_PATTERN != 0 for i in range(config.num_layers))
    return replace(
        config,
        sliding_window=source.size(key),
        sliding_layers=sliding,
        ropeless_layers=tuple(not slides for slides in sliding),
    )


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """OLMo: one norm over all heads of q and one over all of k."""
    return _build(config, tensors, "full")


def build_exaone4(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """EXAONE: a norm of each head."""
    return _build(config, tensors, "head")


def _build(
    config: ModelConfig, tensors: Mapping[str, Tensor], qk_norm: Literal["head", "full"]
) -> Graph:
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope, factors="rope_freqs.weight")
    x = d.embed()
    for layer in d.layers():
        turned = rotary if config.rotates(layer) else None
        y = d.attention(x, turned, qk_norm=qk_norm)
        x = d.add(x, d.norm(y, "post_attention_norm"))
        x = d.add(x, d.norm(d.gated_mlp(x), "post_ffw_norm"))
    return d.finish(x)

"""Gemma 1 and 2: embeddings scaled by sqrt(hidden), GELU. Gemma 2 slides in every other layer, caps
scores and logits, and has norms before and after each block."""

from __future__ import annotations

import math
from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_LAYERS_OF_27B = 46
_CAPS = {
    "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping",
}


def adjust_gemma(config: ModelConfig, source: Source) -> ModelConfig:
    """Gemma 1. Its config.json may say "gelu"; the tanh approximation is meant."""
    offset = 0.0 if source.is_gguf else 1.0
    scale = config.hidden_size**0.5
    return replace(config, activation="gelu", embedding_scale=scale, norm_unit_offset=offset)


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Gemma 2: even layers slide."""
    config = adjust_gemma(config, source)
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    named = None if source.is_gguf else layer_types(source, config.num_layers)
    caps = {field: source.number(key) for field, key in _CAPS.items() if source.has(key)}
    return replace(
        config,
        sliding_window=source.size(key, 4096),
        sliding_layers=named or tuple(i % 2 == 0 for i in range(config.num_layers)),
        attention_scale=_scale(config, source),
        attention_softcap=caps.get("attention_softcap"),
        logit_softcap=caps.get("logit_softcap"),
    )


def _scale(config: ModelConfig, source: Source) -> float:
    if not source.is_gguf:
        return 1 / math.sqrt(source.number("query_pre_attn_scalar", config.head_dim))
    # The 27B model alone scales queries by its hidden size per head; the file does not say so.
    is_27b = config.num_layers == _LAYERS_OF_27B
    return 1 / math.sqrt(config.hidden_size / config.num_heads if is_27b else config.head_dim)


def build_gemma(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Gemma 1: Llama's order."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Gemma 2: norms around both blocks."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        y = d.attention(d.norm(x, "attn_norm"), rotary)
        x = d.add(x, d.norm(y, "post_attention_norm"))
        y = d.gated_mlp(d.norm(x, "ffn_norm"))
        x = d.add(x, d.norm(y, "post_ffw_norm"))
    return d.finish(x)

"""Gemma 3 (text): five sliding layers to each full one, two rotary bases, q/k norms, norms before
and after each block, embeddings scaled by sqrt(hidden)."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.decoder import Decoder
from octavo.models.huggingface import layer_types, rope_of
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_PATTERN = 6
"""Every sixth layer sees everything; the others slide."""
_LOCAL_BASE = 10000.0
"""Rotary base of the sliding layers, where the file does not say it."""
_LAYERS_OF_27B = 62


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Fill in what GGUF leaves out (as llama.cpp does) or what config.json spells its own way."""
    common = replace(config, activation="gelu", embedding_scale=config.hidden_size**0.5)
    return _from_gguf(common, source) if source.is_gguf else _from_json(common, source)


def _from_gguf(config: ModelConfig, source: Source) -> ModelConfig:
    local = RopeConfig(source.number("rope.freq_base_swa", _LOCAL_BASE), config.rope.rotary_dim)
    # The 27B model alone scales queries by its hidden size per head; the file does not say so.
    per_head = config.hidden_size / config.num_heads
    is_27b = config.num_layers == _LAYERS_OF_27B
    softcap = "final_logit_softcapping"
    return replace(
        config,
        rope_local=local,
        sliding_window=source.size("attention.sliding_window"),
        sliding_layers=_sliding(config.num_layers, _gguf_pattern(source, config.num_layers)),
        attention_scale=per_head**-0.5 if is_27b else None,
        logit_softcap=source.number(softcap) if source.has(softcap) else None,
    )


def _from_json(config: ModelConfig, source: Source) -> ModelConfig:
    named = layer_types(source, config.num_layers)
    pattern = source.size("sliding_window_pattern", source.size("_sliding_window_pattern", 6))
    caps = {
        "attention_softcap": "attn_logit_softcapping",
        "logit_softcap": "final_logit_softcapping",
    }
    found = {field: source.number(key) for field, key in caps.items() if source.has(key)}
    return replace(
        config,
        rope_local=_local_rope(config, source),
        sliding_window=source.size("sliding_window"),
        sliding_layers=named or _sliding(config.num_layers, pattern),
        attention_scale=source.number("query_pre_attn_scalar", config.head_dim) ** -0.5,
        norm_unit_offset=1.0,
        attention_softcap=found.get("attention_softcap"),
        logit_softcap=found.get("logit_softcap"),
    )


def _local_rope(config: ModelConfig, source: Source) -> RopeConfig:
    """Scaling concerns the full layers only, except where the file gives each kind its own."""
    if "sliding_attention" in source.table("rope_parameters"):
        return rope_of(source, config.head_dim, "sliding_attention")
    base = source.number("rope_local_base_freq", _LOCAL_BASE)
    return RopeConfig(base, config.rope.rotary_dim)


def _gguf_pattern(source: Source, num_layers: int) -> int | tuple[bool, ...]:
    key = "attention.sliding_window_pattern"
    if not source.has(key):
        return _PATTERN
    if isinstance(source.get(key), int):
        return source.size(key)
    return source.flags(key, num_layers)


def _sliding(num_layers: int, pattern: int | tuple[bool, ...]) -> tuple[bool, ...]:
    if isinstance(pattern, tuple):
        return pattern
    return tuple((layer + 1) % pattern != 0 for layer in range(num_layers))


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Norms around both blocks; the rotary base depends on whether the layer slides."""
    d = Decoder(config, tensors)
    full = d.rotary("rope.inv_freq", config.rope)
    local = d.rotary("rope_local.inv_freq", config.rope_local or config.rope)
    x = d.embed()
    for layer in d.layers():
        rotary = full if config.window_of(layer) is None else local
        y = d.attention(d.norm(x, "attn_norm"), rotary, qk_norm="head")
        x = d.add(x, d.norm(y, "post_attention_norm"))
        y = d.gated_mlp(d.norm(x, "ffn_norm"))
        x = d.add(x, d.norm(y, "post_ffw_norm"))
    return d.finish(x)

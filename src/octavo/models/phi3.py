"""Phi-3, 3.5 and 4-mini: Llama's shape with fused projections, partly rotated heads, and two sets
of rotary factors for short and long contexts ("longrope", Ding et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.fused import split_gate_up, split_qkv
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """GGUF files give longrope's factors as tensors."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    config = replace(config, sliding_window=source.size(key) if source.has(key) else None)
    if not source.is_gguf or "rope_factors_long.weight" not in source.checkpoint.tensors:
        return config
    original = source.size("rope.scaling.original_context_length", config.context_length)
    params = {"original_context": float(original), "factor": config.context_length / original}
    if source.has("rope.scaling.attn_factor"):
        params["attention_factor"] = source.number("rope.scaling.attn_factor")
    return replace(config, rope=replace(config.rope, scaling="longrope", params=params))


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """The fused projections as tensors of their own."""
    return split_gate_up(config, split_qkv(config, checkpoint.tensors))


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and gated MLP."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

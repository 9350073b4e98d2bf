"""Llama 1 to 3.x, and what is built like it: SmolLM2, TinyLlama, Mistral (a sliding window)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.weights.tensor import Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """GGUF files hold q and k with rows reordered for interleaved pairs; Hugging Face's do not."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    return replace(
        config,
        rope=replace(config.rope, interleaved=source.is_gguf),
        sliding_window=source.size(key) if source.has(key) else None,
    )


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and gated MLP; biases where the file has them."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope, factors="rope_freqs.weight")
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm"), biased=None))
    return d.finish(x)

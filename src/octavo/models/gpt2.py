"""GPT-2: learned positions, layer norms, biases everywhere, joined q, k and v."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.fused import split_qkv, transposed
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor

_TURNED = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
"""Stored [in, out] in its own files."""


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Scores scaled by the layer's number are not built here."""
    if source.flag("scale_attn_by_inverse_layer_idx"):
        key = "scale_attn_by_inverse_layer_idx"
        raise UnsupportedError(f"{source.checkpoint.path}: '{key}' is true, expected false")
    return replace(config, activation="gelu" if source.is_gguf else config.activation)


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """q, k and v as tensors of their own."""
    tensors = checkpoint.tensors
    if checkpoint.format != "gguf":
        tensors = transposed(tensors, _TURNED)
    return split_qkv(config, tensors)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and MLP; nothing rotates."""
    d = Decoder(config, tensors)
    x = d.add(d.embed(), d.embed_positions())
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), None, biased=None))
        x = d.add(x, d.mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

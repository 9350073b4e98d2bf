"""OPT: learned positions from the third row of their table, layer norms, biases, ReLU."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_OFFSET = 2


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """The 350M model alone has its norms after the blocks and a narrower embedding."""
    if source.is_gguf:
        return replace(config, activation="relu")
    if source.has("do_layer_norm_before") and not source.flag("do_layer_norm_before"):
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'do_layer_norm_before' is false, expected true"
        )
    if source.size("word_embed_proj_dim", config.hidden_size) != config.hidden_size:
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'word_embed_proj_dim' differs from 'hidden_size'"
        )
    return config


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and MLP; nothing rotates."""
    d = Decoder(config, tensors)
    x = d.add(d.embed(), d.embed_positions(_OFFSET))
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), None, biased=None))
        x = d.add(x, d.mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

"""StableLM: Llama's order with layer norms and partly rotated heads."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.weights.tensor import Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """The 12B model's head norms and parallel blocks are not built here."""
    for key in ("qk_layernorm", "use_parallel_residual"):
        if source.flag(key):
            raise UnsupportedError(f"{source.checkpoint.path}: '{key}' is true, expected false")
    return config


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and gated MLP; q, k and v have biases in some."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm")))
    return d.finish(x)

"""BitNet b1.58: Llama's order with a norm inside each block, before its last product, and squared
rectifiers (Ma et al. 2024, 2025). The weights of layers are -1, 0 or 1 times one scale."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor

_FIRST = "bitnet."
"""Keys of the architecture of the first models, whose gates have SiLU. "bitnet-b1.58" and
"bitnet-25", and every config.json that says so, have the squared rectifier."""


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """GGUF does not name the activation; its architectures tell it."""
    if not source.is_gguf:
        return config
    return replace(config, activation="silu" if source.prefix == _FIRST else "relu2")


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and gated MLP, each with a norm inside."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        y = d.norm(x, "attn_norm")
        x = d.add(x, d.attention(y, rotary, biased=None, sub_norm="attn_sub_norm"))
        x = d.add(x, d.gated_mlp(d.norm(x, "ffn_norm"), sub_norm="ffn_sub_norm"))
    return d.finish(x)

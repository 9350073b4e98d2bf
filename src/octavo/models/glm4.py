"""GLM-4 (0414): norms around both blocks, half of each head rotated in interleaved pairs, gate and
up stored joined."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.fused import split_gate_up
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Neither format says how pairs lie."""
    return replace(config, rope=replace(config.rope, interleaved=True))


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """gate and up as tensors of their own."""
    return split_gate_up(config, checkpoint.tensors)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """q, k and v have biases in most of them."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        y = d.attention(d.norm(x, "attn_norm"), rotary, biased=None)
        x = d.add(x, d.norm(y, "post_attention_norm"))
        y = d.gated_mlp(d.norm(x, "ffn_norm"))
        x = d.add(x, d.norm(y, "post_ffw_norm"))
    return d.finish(x)

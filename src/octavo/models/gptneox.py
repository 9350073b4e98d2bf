"""GPT-NeoX and Pythia: attention and MLP side by side, each after its own layer norm; partly
rotated heads, biases everywhere, joined q, k and v."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.fused import split_qkv, split_qkv_by_head
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Few models have their blocks one after the other."""
    parallel = source.get("use_parallel_residual")
    share = source.number("rotary_pct", 1.0) if source.has("rotary_pct") else None
    rope = config.rope
    if share is not None:
        base = source.number("rotary_emb_base", rope.base)
        rope = replace(rope, rotary_dim=int(config.head_dim * share), base=base)
    activation = "gelu_erf" if source.is_gguf else config.activation
    return replace(config, rope=rope, activation=activation, parallel_blocks=parallel is not False)


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """q, k and v as tensors of their own; its own files store them head by head."""
    split = split_qkv if checkpoint.format == "gguf" else split_qkv_by_head
    return split(config, checkpoint.tensors)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """x + attention(norm(x)) + mlp(other norm(x))."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        y = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None))
        source = x if config.parallel_blocks else y
        x = d.add(y, d.mlp(d.norm(source, "ffn_norm")))
    return d.finish(x)

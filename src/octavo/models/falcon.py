"""Falcon: attention and MLP side by side, queries sharing one key head or a few, joined q, k and v.
The first ones (7B) have one norm for both blocks, the later (40B, 180B) one for each."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.fused import split_qkv, split_qkv_by_head
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Old and new layout say the number of KV heads differently."""
    if source.is_gguf:
        parallel = "blk.0.ffn_norm.weight" not in source.checkpoint.tensors
        return replace(config, activation="gelu_erf", norm_kind="layer", parallel_blocks=parallel)
    if source.flag("alibi"):
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'alibi' is true, expected false: positions as a bias of "
            "scores (falcon-rw) are not supported, only rotary ones"
        )
    new = source.flag("new_decoder_architecture")
    parallel = new or source.get("parallel_attn") is not False
    kv_heads = config.num_heads
    if new:
        kv_heads = source.size("num_kv_heads", config.num_heads)
    elif source.get("multi_query") is not False:
        kv_heads = 1
    return replace(config, num_kv_heads=kv_heads, norm_kind="layer", parallel_blocks=parallel)


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """q, k and v as tensors of their own; its own files store them by KV head."""
    split = split_qkv if checkpoint.format == "gguf" else split_qkv_by_head
    return split(config, checkpoint.tensors)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """x + attention(norm(x)) + mlp(norm(x)), with one norm or two."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for _ in d.layers():
        normed = d.norm(x, "attn_norm")
        first = d.norm(x, "attn_norm_2") if d.has("attn_norm_2.weight") else normed
        x = d.add(x, d.attention(first, rotary, biased=None))
        source = normed if config.parallel_blocks else d.norm(x, "ffn_norm")
        x = d.add(x, d.mlp(source))
    return d.finish(x)

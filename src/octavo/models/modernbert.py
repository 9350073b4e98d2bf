"""ModernBERT: norms before the blocks, rotation with a base for each kind of layer, most layers
seeing only a window, gated MLPs."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.encoder import Encoder, as_encoder, encoder_config, without_unused
from octavo.models.fused import split_gate_up, split_qkv
from octavo.models.huggingface import layer_types, rope_of
from octavo.models.source import Source
from octavo.weights.tensor import Checkpoint, Tensor

_PATTERN = 3
"""Every third layer, from the first one on, sees everything."""
_GLOBAL_BASE, _LOCAL_BASE = 160000.0, 10000.0
_GGUF_KINDS = {1: "mean", 2: "cls"}


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Windows, the two rotary bases and what the head reads."""
    return _from_gguf(config, source) if source.is_gguf else _from_json(config, source)


def _from_json(config: ModelConfig, source: Source) -> ModelConfig:
    n = config.num_layers
    every = source.size("global_attn_every_n_layers", _PATTERN)
    usual = tuple(layer % every != 0 for layer in range(n))
    pooling = source.text("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise source.error("classifier_pooling", pooling, "cls or mean")
    kind = source.text("classifier_activation", "gelu")
    if kind not in ("gelu", "silu", "relu"):
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'classifier_activation': got '{kind:.40}', expected gelu, "
            "silu or relu"
        )
    activation = "gelu_erf" if kind == "gelu" else kind
    return as_encoder(
        config,
        encoder_config(source, head_pooling=pooling, head_activation=activation),
        rope=_rope(config, source, "full_attention", "global_rope_theta", _GLOBAL_BASE),
        rope_local=_rope(config, source, "sliding_attention", "local_rope_theta", _LOCAL_BASE),
        sliding_window=source.size("local_attention", 128) // 2 + 1,
        sliding_layers=layer_types(source, n) or usual,
        activation=config.activation if source.has("hidden_activation") else "gelu_erf",
    )


def _rope(config: ModelConfig, source: Source, kind: str, old_key: str, usual: float) -> RopeConfig:
    if kind in source.table("rope_parameters"):
        return rope_of(source, config.head_dim, kind)
    return RopeConfig(source.number(old_key, usual), config.head_dim)


def _from_gguf(config: ModelConfig, source: Source) -> ModelConfig:
    local = RopeConfig(source.number("rope.freq_base_swa", _LOCAL_BASE), config.rope.rotary_dim)
    key = "attention.sliding_window_pattern"
    n = config.num_layers
    if source.has(key) and not isinstance(source.get(key), int):
        sliding = source.flags(key, n)
    else:
        every = source.size(key, _PATTERN)
        sliding = tuple(layer % every != 0 for layer in range(n))
    pooling = _GGUF_KINDS.get(source.get("classifier.pooling_type"), "mean")
    activation = source.text("hidden_activation", "gelu")
    return as_encoder(
        config,
        encoder_config(source, head_pooling=pooling, head_activation="gelu_erf"),
        rope_local=local,
        sliding_window=source.size("attention.sliding_window") // 2 + 1,
        sliding_layers=sliding,
        activation="silu" if activation == "silu" else "gelu_erf",
    )


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """q, k and v, and the halves of the gated MLP, apart."""
    return split_gate_up(config, split_qkv(config, without_unused(config, checkpoint.tensors)))


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and MLP; the first attention reads what the embedding's norm gives."""
    e = Encoder(config, tensors)
    full = e.rotary("rope.inv_freq", config.rope)
    local = e.rotary("rope_local.inv_freq", config.rope_local or config.rope)
    x = e.embed_input(positions=False)
    for layer in e.layers():
        rotary = full if config.window_of(layer) is None else local
        normed = e.norm(x, "attn_norm") if f"blk.{layer}.attn_norm.weight" in tensors else x
        x = e.add(x, e.attention(normed, rotary, biased=None))
        x = e.add(x, e.gated_mlp(e.norm(x, "ffn_norm"), biased=None))
    return e.finish(e.final_norm(x))

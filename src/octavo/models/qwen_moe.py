"""Qwen2-MoE and Qwen3-MoE: their dense cousins with experts in most layers; OLMoE, which is built
like Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import UnsupportedError
from octavo.graph import Graph, RouteAttrs
from octavo.models import qwen2
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.mixture import read_mixture, stack_experts
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust_qwen2(config: ModelConfig, source: Source) -> ModelConfig:
    """Shared experts behind a gate; weights as the softmax gave them, unless config.json says
    otherwise."""
    config = _adjust(config, source, normalize=not source.is_gguf and source.flag("norm_topk_prob"))
    key = "expert_shared_feed_forward_length" if source.is_gguf else _SHARED
    assert config.mixture is not None
    mixture = replace(config.mixture, shared_size=source.size(key, config.intermediate_size))
    return replace(config, mixture=mixture)


def adjust_qwen3(config: ModelConfig, source: Source) -> ModelConfig:
    """No shared experts; GGUF files leave it unsaid that the weights are normalised."""
    return _adjust(config, source, normalize=source.is_gguf or source.flag("norm_topk_prob"))


def adjust_olmoe(config: ModelConfig, source: Source) -> ModelConfig:
    """Llama's attention with norms over all heads of queries and of keys."""
    if not source.is_gguf and source.has("clip_qkv"):
        raise UnsupportedError(
            f"{source.checkpoint.path}: 'clip_qkv' is set; clipping queries, keys and values is "
            "not supported"
        )
    normalize = not source.is_gguf and source.flag("norm_topk_prob")
    return read_mixture(config, source, RouteAttrs(1, normalize=normalize))


_SHARED = "shared_expert_intermediate_size"


def _adjust(config: ModelConfig, source: Source, *, normalize: bool) -> ModelConfig:
    config = qwen2.adjust(config, source)
    config = read_mixture(config, source, RouteAttrs(1, normalize=normalize))
    assert config.mixture is not None
    dense = _dense_layers(source, config.num_layers)
    return replace(config, mixture=replace(config.mixture, dense_layers=dense))


def _dense_layers(source: Source, num_layers: int) -> tuple[bool, ...]:
    """Listed ones, and all but every n-th; of a GGUF file those that have a plain MLP."""
    if source.is_gguf:
        names = source.checkpoint.tensors
        return tuple(f"blk.{i}.ffn_gate.weight" in names for i in range(num_layers))
    listed = source.get("mlp_only_layers") or []
    if not isinstance(listed, list) or any(not isinstance(layer, int) for layer in listed):
        raise source.error("mlp_only_layers", listed, "a list of layers")
    step = source.size("decoder_sparse_step", 1)
    return tuple(i in listed or (i + 1) % step != 0 for i in range(num_layers))


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Experts stacked, and the gate of the shared ones as a matrix of one row."""
    tensors = dict(stack_experts(config, checkpoint))
    for name, tensor in tensors.items():
        if name.endswith(".ffn_gate_inp_shexp.weight") and len(tensor.shape) == 1:
            row = (1, *tensor.shape)
            tensors[name] = Tensor(name, row, tensor.scheme, tensor.data, tensor.home)
    return tensors


def build_qwen2(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention, with biases where the file has them."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for layer in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, biased=None))
        x = d.add(x, d.mixture_or_mlp(d.norm(x, "ffn_norm"), layer))
    return d.finish(x)


def build_qwen3(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention with head norms."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for layer in d.layers():
        y = d.attention(d.norm(x, "attn_norm"), rotary, biased=None, qk_norm="head")
        x = d.add(x, y)
        x = d.add(x, d.mixture_or_mlp(d.norm(x, "ffn_norm"), layer))
    return d.finish(x)


def build_olmoe(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention with norms over all heads."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for layer in d.layers():
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), rotary, qk_norm="full"))
        x = d.add(x, d.mixture_or_mlp(d.norm(x, "ffn_norm"), layer))
    return d.finish(x)

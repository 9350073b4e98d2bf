"""Llama 1 to 3.x, and what is built like it: SmolLM2, TinyLlama, Mistral (a sliding window),
SmolLM3 (some layers do not rotate), Granite (scales along the way), Mixtral (experts)."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph import Graph, RouteAttrs
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.mixture import has_experts, read_mixture
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """GGUF files hold q and k with rows reordered for interleaved pairs; Hugging Face's do not."""
    key = "attention.sliding_window" if source.is_gguf else "sliding_window"
    if has_experts(source):  # Mixtral; GGUF files call it llama too
        config = read_mixture(config, source, RouteAttrs(1, normalize=True))
    return replace(
        config,
        rope=replace(config.rope, interleaved=source.is_gguf),
        sliding_window=source.size(key) if source.has(key) else None,
    )


def adjust_smollm3(config: ModelConfig, source: Source) -> ModelConfig:
    """Every fourth layer does not rotate, unless config.json lists which."""
    config = adjust(config, source)
    listed = None if source.is_gguf else source.get("no_rope_layers")
    if listed:
        turns = source.flags("no_rope_layers", config.num_layers)  # 1: this layer rotates
    else:
        interval = 4 if source.is_gguf else source.size("no_rope_layer_interval", 4)
        turns = tuple((i + 1) % interval != 0 for i in range(config.num_layers))
    return replace(config, ropeless_layers=tuple(not turn for turn in turns))


def adjust_granite(config: ModelConfig, source: Source) -> ModelConfig:
    """Embeddings, residuals, scores and logits each have a factor."""
    keys = _GRANITE_GGUF if source.is_gguf else _GRANITE_JSON
    embedding, residual, scores, logits = (source.number(key, 1.0) for key in keys)
    return replace(
        adjust(config, source),
        embedding_scale=embedding,
        residual_scale=residual,
        attention_scale=scores if source.has(keys[2]) else None,
        logit_scale=1.0 / logits,
    )


_GRANITE_GGUF = ("embedding_scale", "residual_scale", "attention.scale", "logit_scale")
_GRANITE_JSON = (
    *("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"),
)


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm attention and gated MLP or experts; biases where the file has them."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope, factors="rope_freqs.weight")
    x = d.embed()
    for layer in d.layers():
        turned = rotary if config.rotates(layer) else None
        x = d.add(x, d.attention(d.norm(x, "attn_norm"), turned, biased=None))
        x = d.add(x, d.mixture_or_mlp(d.norm(x, "ffn_norm"), layer))
    return d.finish(x)

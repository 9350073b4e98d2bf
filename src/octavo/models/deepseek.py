"""DeepSeek V2 and V3: latent attention, some dense layers, then experts: V2 chooses among the best
groups by their best expert, V3 by sigmoids with a bias for the choice alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from octavo.graph import Graph, RouteAttrs
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.decoder import Decoder
from octavo.models.latent import latent_attention, read_latent
from octavo.models.latent_weights import fit_latents
from octavo.models.mixture import has_experts, read_mixture, stack_experts
from octavo.models.rope import yarn_magnitude
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


def adjust(config: ModelConfig, source: Source) -> ModelConfig:
    """Latents, experts, and YaRN's way with scores."""
    config = read_latent(config, source)
    if has_experts(source):
        config = _mixture(config, source)
    return replace(
        config,
        rope=_rope(config, source),
        attention_scale=config.head_dim**-0.5 * _score_factor(config, source),
    )


_GGUF_SCORES: dict[int, Literal["softmax", "sigmoid"]] = {1: "softmax", 2: "sigmoid"}
_GGUF_KEYS = {
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
}


def _mixture(config: ModelConfig, source: Source) -> ModelConfig:
    """V2 scores by softmax and a group by its best expert, V3 by sigmoid and by its two best."""

    def key(name: str) -> str:
        return _GGUF_KEYS[name] if source.is_gguf else name

    def count(name: str) -> int:
        return source.count(key(name))

    scores = _scores(source)
    # "greedy" is V2-Lite's way: there are groups in the config, but all of them are chosen from.
    grouped = source.text("topk_method", "") != "greedy" and count("n_group") > 1
    routing = RouteAttrs(
        1,
        scores,
        normalize=source.flag(key("norm_topk_prob")),
        scale=source.number(key("routed_scaling_factor"), 1.0),
        num_groups=count("n_group") if grouped else 1,
        top_groups=source.size(key("topk_group")) if grouped else 1,
        group_score="top2" if scores == "sigmoid" else "max",
    )
    config = read_mixture(config, source, routing)
    assert config.mixture is not None
    first, every = count("first_k_dense_replace"), source.size("moe_layer_freq", 1)
    dense = tuple(i < first or i % every != 0 for i in range(config.num_layers))
    shared = count("n_shared_experts") * config.mixture.hidden_size
    return replace(config, mixture=replace(config.mixture, shared_size=shared, dense_layers=dense))


def _scores(source: Source) -> Literal["softmax", "sigmoid"]:
    if not source.is_gguf:
        return "sigmoid" if source.get("model_type") == "deepseek_v3" else "softmax"
    kind = source.size("expert_gating_func", 1)
    if kind not in _GGUF_SCORES:
        raise source.error("expert_gating_func", kind, "1 (softmax) or 2 (sigmoid)")
    return _GGUF_SCORES[kind]


def _rope(config: ModelConfig, source: Source) -> RopeConfig:
    split = not source.is_gguf and source.get("rope_interleave") is False
    rope = replace(config.rope, interleaved=not split)
    if source.is_gguf and rope.scaling == "yarn":
        # mscale and mscale_all_dim are equal in all of them: sin and cos keep their size.
        rope = replace(rope, params={**rope.params, "attention_factor": 1.0})
    return rope


def _score_factor(config: ModelConfig, source: Source) -> float:
    """YaRN's attention factor squared, where the file gives it to scores and not to sin and cos."""
    if config.rope.scaling != "yarn":
        return 1.0
    factor = config.rope.params["factor"]
    weight = config.rope.params.get("mscale_all_dim", 0.0)
    if source.has("rope.scaling.yarn_log_multiplier"):
        weight = 10 * source.number("rope.scaling.yarn_log_multiplier")
    return yarn_magnitude(factor, weight) ** 2


def fit(config: ModelConfig, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """Experts stacked; queries and latents as the graph's absorbed form wants them."""
    return fit_latents(config, replace(checkpoint, tensors=stack_experts(config, checkpoint)))


def build(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """Pre-norm latent attention and gated MLP or experts."""
    d = Decoder(config, tensors)
    rotary = d.rotary("rope.inv_freq", config.rope)
    x = d.embed()
    for layer in d.layers():
        x = d.add(x, latent_attention(d, d.norm(x, "attn_norm"), layer, rotary))
        y = d.norm(x, "ffn_norm")
        mixed = config.mixture is not None and config.mixture.in_layer(layer)
        x = d.add(x, d.mixture(y) if mixed else d.gated_mlp(y))
    return d.finish(x)

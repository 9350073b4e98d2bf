"""config.json's keys of one family each, beside those that all have (`config_json.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from octavo.convert.folder_encoders import encoder_keys
from octavo.convert.json_values import layer_types, shortest
from octavo.models import ModelConfig
from octavo.models.rope import yarn_weight

Keys = dict[str, Any]
Names = Collection[str]


def family_keys(c: ModelConfig, model_type: str, tensors: Names) -> Keys:
    """tensors: canonical names that are there. A key with None takes one of all families away."""
    keys = _OWN[c.architecture](c, tensors) if c.architecture in _OWN else {}
    if c.mixture is not None and c.architecture in _MIXTURES:
        keys |= _MIXTURES[c.architecture](c)
    if c.encoder is not None:
        keys |= encoder_keys(c, c.encoder, model_type)
    return keys


def _biased(tensors: Names) -> bool:
    return "blk.0.attn_q.bias" in tensors


def _slides(c: ModelConfig, tensors: Names) -> Keys:
    return {"sliding_window": c.sliding_window, "layer_types": layer_types(c)}


def _llama(c: ModelConfig, tensors: Names) -> Keys:
    return {
        "attention_bias": _biased(tensors),
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "sliding_window": c.sliding_window,
    }


def _granite(c: ModelConfig, tensors: Names) -> Keys:
    return {
        "embedding_multiplier": shortest(c.embedding_scale),
        "residual_multiplier": shortest(c.residual_scale),
        "attention_multiplier": shortest(c.attention_scale or c.head_dim**-0.5),
        "logits_scaling": shortest(1.0 / c.logit_scale),
        "attention_bias": _biased(tensors),
    }


def _gemma2(c: ModelConfig, tensors: Names) -> Keys:
    scalar = float(c.head_dim) if c.attention_scale is None else shortest(c.attention_scale**-2)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": int(scalar) if scalar.is_integer() else scalar,
        "attn_logit_softcapping": c.attention_softcap,
        "final_logit_softcapping": c.logit_softcap,
        **_slides(c, tensors),
    }


def _gemma3(c: ModelConfig, tensors: Names) -> Keys:
    base = shortest(c.rope_local.base) if c.rope_local else None
    return {**_gemma2(c, tensors), "rope_local_base_freq": base}


def _cohere2(c: ModelConfig, tensors: Names) -> Keys:
    own = {"logit_scale": shortest(c.logit_scale), "attention_bias": _biased(tensors)}
    return {**_slides(c, tensors), **own}


def _falcon(c: ModelConfig, tensors: Names) -> Keys:
    """Old layouts have one KV head or one for each query head."""
    two_norms = "blk.0.attn_norm_2.weight" in tensors
    new = two_norms or c.num_kv_heads not in (1, c.num_heads)
    return {
        "new_decoder_architecture": new,
        "multi_query": c.num_kv_heads == 1,
        "num_kv_heads": c.num_kv_heads,
        "num_ln_in_parallel_attn": (2 if two_norms else 1) if new else None,
        "parallel_attn": c.parallel_blocks,
        "bias": "blk.0.attn_qkv.bias" in tensors,
        "alibi": False,
        "ffn_hidden_size": c.intermediate_size,
        "activation": "gelu",
        "layer_norm_epsilon": shortest(c.norm_eps),
        "head_dim": None,
    }


def _opt(c: ModelConfig, tensors: Names) -> Keys:
    return {
        "ffn_dim": c.intermediate_size,
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "word_embed_proj_dim": c.hidden_size,
        "enable_bias": _biased(tensors),
    }


def _gptneox(c: ModelConfig, tensors: Names) -> Keys:
    biased = "blk.0.attn_qkv.bias" in tensors
    return {"use_parallel_residual": c.parallel_blocks, "attention_bias": biased}


def _gptoss(c: ModelConfig, tensors: Names) -> Keys:
    assert c.mixture is not None
    return {
        **_slides(c, tensors),
        "attention_bias": _biased(tensors),
        "swiglu_limit": c.mixture.experts.limit,
    }


def _deepseek(c: ModelConfig, tensors: Names) -> Keys:
    m = c.latent
    assert m is not None
    return {
        "kv_lora_rank": m.kv_rank,
        "q_lora_rank": m.q_rank or None,
        "qk_nope_head_dim": m.nope_dim,
        "qk_rope_head_dim": m.rope_dim,
        "v_head_dim": m.value_dim,
        "head_dim": None,
        "num_key_value_heads": c.num_heads,
        "partial_rotary_factor": None,
        "rope_interleave": True,
        "rope_scaling": _deepseek_yarn(c),
        "attention_bias": "blk.0.attn_q_a.bias" in tensors,
        "num_nextn_predict_layers": 0,
    }


def _deepseek_yarn(c: ModelConfig) -> Keys | None:
    """Both weights are the same: sines keep their size, and scores get the factor's square."""
    if c.rope.scaling != "yarn":
        return None
    p, weight = c.rope.params, yarn_weight(c.rope, c.attention_scale, c.head_dim)
    return {
        "rope_type": "yarn",
        "type": "yarn",
        "factor": shortest(p["factor"]),
        "original_max_position_embeddings": int(p["original_context"]),
        "beta_fast": p.get("beta_fast", 32.0),
        "beta_slow": p.get("beta_slow", 1.0),
        **({} if weight is None else dict.fromkeys(_MSCALES, shortest(weight))),
    }


_MSCALES = ("mscale", "mscale_all_dim")

_OWN: Mapping[str, Callable[[ModelConfig, Names], Keys]] = {
    "llama": _llama,
    "smollm3": lambda c, _: {"no_rope_layers": [int(c.rotates(i)) for i in range(c.num_layers)]},
    "granite": _granite,
    "granitemoe": _granite,
    "qwen2": lambda c, _: {"use_sliding_window": False},
    "qwen2moe": lambda c, names: {"use_sliding_window": False, "qkv_bias": _biased(names)},
    "qwen3moe": lambda c, names: {"use_sliding_window": False, "attention_bias": _biased(names)},
    "gemma": lambda c, _: {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": lambda c, _: {"sliding_window": c.sliding_window},
    "olmo2": _slides,
    "exaone4": _slides,
    "glm4": lambda c, names: {"attention_bias": _biased(names)},
    "cohere2": _cohere2,
    "starcoder2": lambda c, names: {
        "sliding_window": c.sliding_window,
        "use_bias": _biased(names),
    },
    "stablelm": lambda c, names: {"use_qkv_bias": _biased(names), "use_parallel_residual": False},
    "gptneox": _gptneox,
    "falcon": _falcon,
    "opt": _opt,
    "bitnet": lambda c, names: {"attention_bias": _biased(names)},
    "gptoss": _gptoss,
    "deepseek2": _deepseek,
}
"""By family key; a family that is not here has no keys of its own."""


def _experts(c: ModelConfig, count: str) -> Keys:
    assert c.mixture is not None
    return {count: c.mixture.num_experts, "num_experts_per_tok": c.mixture.routing.top_k}


def _local_experts(c: ModelConfig) -> Keys:
    assert c.mixture is not None
    return {**_experts(c, "num_local_experts"), "intermediate_size": c.mixture.hidden_size}


def _granite_experts(c: ModelConfig) -> Keys:
    assert c.mixture is not None
    return {**_local_experts(c), "shared_intermediate_size": c.mixture.shared_size or None}


def _qwen_experts(c: ModelConfig) -> Keys:
    m = c.mixture
    assert m is not None
    return {
        **_experts(c, "num_experts"),
        "moe_intermediate_size": m.hidden_size,
        "shared_expert_intermediate_size": m.shared_size or None,
        "norm_topk_prob": m.routing.normalize,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [i for i in range(c.num_layers) if not m.in_layer(i)],
    }


def _olmoe_experts(c: ModelConfig) -> Keys:
    m = c.mixture
    assert m is not None
    own = {"intermediate_size": m.hidden_size, "norm_topk_prob": m.routing.normalize}
    return {**_experts(c, "num_experts"), **own}


def _deepseek_experts(c: ModelConfig) -> Keys:
    m = c.mixture
    assert m is not None
    r, first = m.routing, sum(not m.in_layer(i) for i in range(c.num_layers))
    ways = ("noaux_tc", "noaux_tc") if r.scores == "sigmoid" else ("greedy", "group_limited_greedy")
    return {
        **_experts(c, "n_routed_experts"),
        "moe_intermediate_size": m.hidden_size,
        "n_shared_experts": m.shared_size // m.hidden_size or None,
        "first_k_dense_replace": first,
        "moe_layer_freq": 1,
        "n_group": r.num_groups,
        "topk_group": r.top_groups,
        "topk_method": ways[r.num_groups > 1],
        "scoring_func": r.scores,
        "norm_topk_prob": r.normalize,
        "routed_scaling_factor": shortest(r.scale),
    }


_MIXTURES: Mapping[str, Callable[[ModelConfig], Keys]] = {
    "llama": _local_experts,
    "gptoss": _local_experts,
    "granitemoe": _granite_experts,
    "qwen2moe": _qwen_experts,
    "qwen3moe": _qwen_experts,
    "olmoe": _olmoe_experts,
    "deepseek2": _deepseek_experts,
}
"""The same of models with experts."""

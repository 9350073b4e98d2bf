"""ModelConfig -> GGUF metadata, under the keys that llama.cpp reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from octavo.models import MixtureConfig, ModelConfig, RopeConfig
from octavo.models.rope import inverse_frequencies, magnitude
from octavo.weights import Tensor
from octavo.weights.tensor import float32_tensor

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
"""general.file_type by the scheme most weights have."""


def gguf_keys(config: ModelConfig, architecture: str, scheme: str) -> dict[str, Any]:
    """All keys but the tokenizer's. scheme: what most weights are stored in."""
    named = {**_sizes(config), **_rope(config.rope), **_own_keys(config)}
    if config.mixture is not None:
        named |= _mixture(config.architecture, config.mixture)
    return {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": config.name,
        "general.file_type": FILE_TYPES.get(scheme),
        "general.quantization_version": 2,
        **{f"{architecture}.{key}": _plain(value) for key, value in named.items()},
    }


def rope_tensors(config: ModelConfig) -> dict[str, Tensor]:
    """Divisors of the frequencies that GGUF holds as tensors: Llama 3's and longrope's."""
    rope = config.rope
    found: dict[str, Any] = {}
    if rope.scaling == "llama3":
        base = rope.base ** -(np.arange(0, rope.rotary_dim, 2) / rope.rotary_dim)
        found["rope_freqs.weight"] = base / inverse_frequencies(rope).astype(np.float64)
    if rope.scaling == "longrope":
        found["rope_factors_long.weight"] = rope.long_factors
        found["rope_factors_short.weight"] = rope.short_factors
    return {k: float32_tensor(k, np.array(v, np.float32)) for k, v in found.items() if len(v)}


def _plain(value: Any) -> Any:
    """GGUF's reals are single precision."""
    return np.float32(value) if isinstance(value, float) else value


def _sizes(c: ModelConfig) -> dict[str, Any]:
    eps = "layer_norm_rms_epsilon" if c.norm_kind == "rms" else "layer_norm_epsilon"
    return {
        "vocab_size": c.vocab_size,
        "context_length": c.context_length,
        "embedding_length": c.hidden_size,
        "block_count": c.num_layers,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_heads,
        "attention.head_count_kv": c.num_kv_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        f"attention.{eps}": float(c.norm_eps),
        "attention.sliding_window": c.sliding_window,
    }


def _mixture(family: str, m: MixtureConfig) -> dict[str, Any]:
    """How a family routes goes without saying. Mixtral's experts have the size of its MLP."""
    return {
        "expert_count": m.num_experts,
        "expert_used_count": m.routing.top_k,
        "expert_feed_forward_length": m.hidden_size if family != "llama" else None,
        "expert_shared_feed_forward_length": m.shared_size or None,
    }


def _rope(rope: RopeConfig) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "rope.freq_base": float(rope.base),
        "rope.dimension_count": rope.rotary_dim,
    }
    p = rope.params
    if rope.scaling in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope.scaling, "rope.scaling.factor": float(p["factor"])}
    if rope.scaling in ("yarn", "longrope"):
        keys["rope.scaling.original_context_length"] = int(p["original_context"])
    if rope.scaling == "longrope":
        keys["rope.scaling.attn_factor"] = float(magnitude(rope))
    return keys


def _own_keys(c: ModelConfig) -> Mapping[str, Any]:
    """The keys of one family each."""
    granite = {
        "embedding_scale": c.embedding_scale,
        "residual_scale": c.residual_scale,
        "attention.scale": c.attention_scale,
        "logit_scale": 1.0 / c.logit_scale,
    }
    own: dict[str, dict[str, Any]] = {
        "granite": granite,
        "granitemoe": granite,
        "gemma2": _softcaps(c),
        "gemma3": {
            **_softcaps(c),
            "rope.freq_base_swa": c.rope_local.base if c.rope_local else None,
            "attention.sliding_window_pattern": _pattern(c),
        },
        "olmo2": {"attention.sliding_window_pattern": _pattern(c)},
        "exaone4": {"attention.sliding_window_pattern": _pattern(c)},
        "cohere2": {"logit_scale": c.logit_scale},
        "gptneox": {"use_parallel_residual": c.parallel_blocks},
    }
    return own.get(c.architecture, {})


def _softcaps(c: ModelConfig) -> dict[str, Any]:
    return {
        "attn_logit_softcapping": c.attention_softcap,
        "final_logit_softcapping": c.logit_softcap,
    }


def _pattern(c: ModelConfig) -> Any:
    return np.array(c.sliding_layers, np.bool_) if c.sliding_layers else None

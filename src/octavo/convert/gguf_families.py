"""GGUF metadata of one family each, beside the keys that all have (`gguf_keys.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from octavo.models import EncoderConfig, LatentConfig, MixtureConfig, ModelConfig
from octavo.models.rope import yarn_weight

Keys = dict[str, Any]
_USUAL_ACTIVATION = {"bert": "tanh", "modern-bert": "gelu_erf", "nomic-bert": "tanh"}
"""What heads do between their layers, where no key says it."""


def family_keys(c: ModelConfig, architecture: str) -> Keys:
    """Without the architecture in front. architecture: GGUF's name."""
    keys = _OWN[c.architecture](c) if c.architecture in _OWN else {}
    if c.mixture is not None:
        keys |= _mixture(c.architecture, c.mixture)
    if c.latent is not None:
        keys |= _latent(c, c.latent)
    if c.encoder is not None:
        keys |= _encoder(c.encoder, architecture)
    return keys


def _mixture(family: str, m: MixtureConfig) -> Keys:
    """How most families route goes without saying. Mixtral's experts have the size of its MLP."""
    return {
        "expert_count": m.num_experts,
        "expert_used_count": m.routing.top_k,
        "expert_feed_forward_length": m.hidden_size if family != "llama" else None,
        "expert_shared_feed_forward_length": m.shared_size or None,
    }


def _latent(c: ModelConfig, m: LatentConfig) -> Keys:
    """The sizes of what is cached as those of keys and values, and of heads beside them."""
    keys: Keys = {
        "attention.head_count_kv": 1,
        "attention.key_length": m.kv_rank + m.rope_dim,
        "attention.value_length": m.kv_rank,
        "attention.key_length_mla": m.nope_dim + m.rope_dim,
        "attention.value_length_mla": m.value_dim,
        "attention.kv_lora_rank": m.kv_rank,
        "attention.q_lora_rank": m.q_rank or None,
    }
    weight = yarn_weight(c.rope, c.attention_scale, c.head_dim)
    if weight is not None:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * weight
    return keys | (_grouped(c, c.mixture) if c.mixture is not None else {})


def _grouped(c: ModelConfig, m: MixtureConfig) -> Keys:
    """DeepSeek's routing: the leading dense layers, groups of experts, and how they are scored."""
    r, dense = m.routing, [i for i in range(c.num_layers) if not m.in_layer(i)]
    return {
        "leading_dense_block_count": len(dense) if dense == list(range(len(dense))) else None,
        "expert_shared_count": m.shared_size // m.hidden_size or None,
        "expert_shared_feed_forward_length": None,
        "expert_weights_scale": r.scale,
        "expert_weights_norm": r.normalize,
        "expert_gating_func": 2 if r.scores == "sigmoid" else 1,
        "expert_group_count": r.num_groups if r.num_groups > 1 else None,
        "expert_group_used_count": r.top_groups if r.num_groups > 1 else None,
    }


def _encoder(e: EncoderConfig, architecture: str) -> Keys:
    """Two keys are read by Octavo alone: the activation of a head that is not the usual one, and
    scores that are no sigmoids."""
    unusual = e.num_labels and e.head_activation != _USUAL_ACTIVATION[architecture]
    return {
        "attention.causal": False,
        "classifier.activation": e.head_activation if unusual else None,
        "classifier.sigmoid": False if e.num_labels and not e.sigmoid else None,
    }


def _modern(c: ModelConfig) -> Keys:
    every = next((i for i in range(1, c.num_layers) if not c.sliding_layers[i]), c.num_layers)
    regular = c.sliding_layers == tuple(i % every != 0 for i in range(c.num_layers))
    mean = c.encoder is not None and c.encoder.head_pooling == "mean"
    return {
        "attention.sliding_window": 2 * ((c.sliding_window or 1) - 1),
        "attention.sliding_window_pattern": every if regular else _pattern(c)[_PATTERN],
        "rope.freq_base_swa": c.rope_local.base if c.rope_local else None,
        "classifier.pooling_type": 1 if mean else 2,
        "hidden_activation": "silu" if c.activation == "silu" else "gelu",
    }


def _granite(c: ModelConfig) -> Keys:
    return {
        "embedding_scale": c.embedding_scale,
        "residual_scale": c.residual_scale,
        "attention.scale": c.attention_scale,
        "logit_scale": 1.0 / c.logit_scale,
    }


def _softcaps(c: ModelConfig) -> Keys:
    return {
        "attn_logit_softcapping": c.attention_softcap,
        "final_logit_softcapping": c.logit_softcap,
    }


def _gemma3(c: ModelConfig) -> Keys:
    base = c.rope_local.base if c.rope_local else None
    return {**_softcaps(c), "rope.freq_base_swa": base, **_pattern(c)}


_PATTERN = "attention.sliding_window_pattern"


def _pattern(c: ModelConfig) -> Keys:
    return {_PATTERN: np.array(c.sliding_layers, np.bool_) if c.sliding_layers else None}


_OWN: Mapping[str, Callable[[ModelConfig], Keys]] = {
    "granite": _granite,
    "granitemoe": _granite,
    "gemma2": _softcaps,
    "gemma3": _gemma3,
    "olmo2": _pattern,
    "exaone4": _pattern,
    "cohere2": lambda c: {"logit_scale": c.logit_scale},
    "gptneox": lambda c: {"use_parallel_residual": c.parallel_blocks},
    "modernbert": _modern,
}
"""By family key; a family that is not here has no keys of its own."""

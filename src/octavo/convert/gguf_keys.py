"""ModelConfig -> GGUF metadata, under the keys that llama.cpp reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.convert.gguf_families import family_keys
from octavo.models import ModelConfig, RopeConfig
from octavo.models.rope import inverse_frequencies, magnitude
from octavo.weights import Tensor
from octavo.weights.tensor import float32_tensor

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
"""general.file_type by the scheme most weights have."""


def gguf_keys(config: ModelConfig, architecture: str, scheme: str) -> dict[str, Any]:
    """All keys but the tokenizer's. scheme: what most weights are stored in."""
    named = {**_sizes(config), **_rope(config.rope), **family_keys(config, architecture)}
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

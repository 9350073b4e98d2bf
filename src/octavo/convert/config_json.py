"""ModelConfig -> config.json, in the spelling that old and new versions of transformers read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from octavo.convert.conventions import Conventions
from octavo.convert.folder_families import family_keys
from octavo.convert.json_values import shortest
from octavo.errors import UnsupportedError
from octavo.models import ModelConfig, RopeConfig
from octavo.models.rope import inverse_frequencies

_ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu_pytorch_tanh",
    "gelu_erf": "gelu",
    "relu": "relu",
    "relu2": "relu2",
}
_GPT2 = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
    "rms_norm_eps": "layer_norm_epsilon",
}
_NOT_IN_GPT2 = ("num_key_value_heads", "head_dim", "rope_theta")
_NULLS = ("pad_token_id", "q_lora_rank")
"""Keys that transformers would fill with something else where they are absent."""
MAX_CONTEXT = 1 << 24


def config_json(
    config: ModelConfig,
    conventions: Conventions,
    tensors: Collection[str],
    factors: Mapping[str, np.ndarray[Any, np.dtype[np.float32]]],
    dtype: str,
    pad_token_id: int | None = None,
) -> dict[str, Any]:
    """The whole object. tensors: canonical names that are there. factors: tensors of divisors of
    the frequencies by name. dtype: of most weights ("bfloat16").

    Raises UnsupportedError for a rotary scaling that config.json cannot say.
    """
    keys = _common(config, conventions, tensors, dtype) | {"pad_token_id": pad_token_id}
    keys |= _rope(config, factors)
    keys |= family_keys(config, conventions.model_type(config), tensors)
    if config.architecture == "gpt2":
        keys = {_GPT2.get(k, k): v for k, v in keys.items() if k not in _NOT_IN_GPT2}
        keys["activation_function"] = "gelu_new"
    return {key: value for key, value in keys.items() if value is not None or key in _NULLS}


def _common(
    c: ModelConfig, conventions: Conventions, tensors: Collection[str], dtype: str
) -> dict[str, Any]:
    eps = "rms_norm_eps" if c.norm_kind == "rms" else "layer_norm_eps"
    eps = "norm_epsilon" if c.architecture == "starcoder2" else eps
    ends: Any = list(c.eos_token_ids) if len(c.eos_token_ids) > 1 else None
    return {
        "architectures": [conventions.transformers_class(c)],
        "model_type": conventions.model_type(c),
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.context_length,
        "hidden_act": _ACTIVATIONS[c.activation],
        eps: shortest(c.norm_eps),
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": c.bos_token_id,
        "eos_token_id": ends or next(iter(c.eos_token_ids), None),
        "torch_dtype": dtype,
    }


def _rope(c: ModelConfig, factors: Mapping[str, Any]) -> dict[str, Any]:
    share = c.rope.rotary_dim / c.head_dim
    partial = {"partial_rotary_factor": share} if share != 1 else {}
    if c.architecture == "gptneox":
        partial["rotary_pct"] = share
    return {
        "rope_theta": shortest(c.rope.base),
        "rope_scaling": _scaling(c, factors),
        **partial,
        **_original(c),
    }


def _original(c: ModelConfig) -> dict[str, Any]:
    if c.rope.scaling != "longrope":
        return {}
    return {"original_max_position_embeddings": int(c.rope.params["original_context"])}


def _scaling(c: ModelConfig, factors: Mapping[str, Any]) -> dict[str, Any] | None:
    rope, p = c.rope, c.rope.params
    if "rope_freqs.weight" in factors:
        return _llama3(c, factors["rope_freqs.weight"])
    if rope.scaling == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": rope.scaling, "factor": shortest(p["factor"])}
    if rope.scaling == "yarn":
        scaling["original_max_position_embeddings"] = int(p["original_context"])
        scaling |= {k: p[k] for k in ("beta_fast", "beta_slow", "attention_factor") if k in p}
        if not p.get("truncate", 1.0):
            scaling["truncate"] = False
    if rope.scaling == "longrope":
        scaling |= {
            "type": "longrope",
            "short_factor": _listed(factors, "short", rope.short_factors),
            "long_factor": _listed(factors, "long", rope.long_factors),
        }
        if "attention_factor" in p:
            scaling["attention_factor"] = shortest(p["attention_factor"])
    return scaling


def _listed(factors: Mapping[str, Any], kind: str, known: tuple[float, ...]) -> list[float]:
    stored = factors.get(f"rope_factors_{kind}.weight")
    return list(known) if stored is None else [shortest(x) for x in stored.tolist()]


def _llama3(c: ModelConfig, divisors: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, Any]:
    """The parameters that give these divisors: llama.cpp keeps only what follows from them."""
    wanted = inverse_frequencies(c.rope, divisors)
    for params in _llama3_guesses(shortest(float(divisors.max())), c.context_length):
        rope = RopeConfig(c.rope.base, c.rope.rotary_dim, scaling="llama3", params=params)
        if np.allclose(inverse_frequencies(rope), wanted, rtol=1e-5, atol=0):
            return {
                "rope_type": "llama3",
                "factor": params["factor"],
                "low_freq_factor": params["low_freq_factor"],
                "high_freq_factor": params["high_freq_factor"],
                "original_max_position_embeddings": int(params["original_context"]),
            }
    raise UnsupportedError(
        "convert: rope_freqs.weight holds divisors that no setting of Llama 3's rotary scaling"
        " gives, so config.json cannot say them"
    )


def _llama3_guesses(factor: float, context: int) -> Iterator[dict[str, float]]:
    """Trained contexts by powers of two, the usual turning points first."""
    contexts = [8192] + [2**i for i in range(4, 25) if 2**i <= max(context, 8192)]
    for low, high in ((1.0, 4.0), (1.0, 2.0), (1.0, 8.0), (2.0, 4.0)):
        for original in contexts:
            yield {
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_context": float(original),
            }

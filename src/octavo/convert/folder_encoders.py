"""config.json's keys of encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.convert.json_values import layer_types, shortest
from octavo.models import EncoderConfig, ModelConfig

Keys = dict[str, Any]


def encoder_keys(c: ModelConfig, e: EncoderConfig, model_type: str) -> Keys:
    """All but what every family has; None takes such a key away."""
    keys: Keys = {
        "tie_word_embeddings": True,
        "num_key_value_heads": None,
        "head_dim": None,
        "rope_theta": None,
    }
    if e.num_labels:
        keys["id2label"] = {str(i): f"LABEL_{i}" for i in range(e.num_labels)}
        keys["label2id"] = {f"LABEL_{i}": i for i in range(e.num_labels)}
        if not e.sigmoid:
            keys["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    return keys | _ENCODERS[model_type](c, e)


def _bert(c: ModelConfig, e: EncoderConfig) -> Keys:
    """RoBERTa's kin count positions from behind the padding token's id."""
    return {
        "position_embedding_type": "absolute",
        "type_vocab_size": e.num_types,
        "layer_norm_eps": shortest(c.norm_eps),
        "max_position_embeddings": c.context_length + e.position_offset,
        "pad_token_id": max(e.position_offset - 1, 0),
    }


def _nomic(c: ModelConfig, e: EncoderConfig) -> Keys:
    base = shortest(c.rope.base)
    return {
        "type_vocab_size": e.num_types,
        "layer_norm_eps": shortest(c.norm_eps),
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
    }


def _distilbert(c: ModelConfig, e: EncoderConfig) -> Keys:
    return {
        "dim": c.hidden_size,
        "hidden_dim": c.intermediate_size,
        "n_layers": c.num_layers,
        "n_heads": c.num_heads,
        "activation": "gelu",
        "sinusoidal_pos_embds": False,
        **dict.fromkeys(("hidden_size", "intermediate_size", "num_hidden_layers")),
        **dict.fromkeys(("num_attention_heads", "hidden_act")),
    }


def _modernbert(c: ModelConfig, e: EncoderConfig) -> Keys:
    active = "silu" if c.activation == "silu" else "gelu"
    return {
        "norm_eps": shortest(c.norm_eps),
        "hidden_activation": active,
        "hidden_act": None,
        "local_attention": 2 * ((c.sliding_window or 1) - 1),
        "layer_types": layer_types(c),
        "global_rope_theta": shortest(c.rope.base),
        "local_rope_theta": shortest(c.rope_local.base) if c.rope_local else None,
        "classifier_pooling": e.head_pooling,
        "classifier_activation": {"gelu_erf": "gelu"}.get(e.head_activation, e.head_activation),
    }


_ENCODERS: Mapping[str, Callable[[ModelConfig, EncoderConfig], Keys]] = {
    "bert": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "camembert": _bert,
    "distilbert": _distilbert,
    "nomic_bert": _nomic,
    "modernbert": _modernbert,
}
"""By config.json's model_type."""

"""config.json -> ModelConfig: the keys all families share, in transformers' old and new spelling.

New files hold `rope_parameters`; older ones `rope_theta` and `rope_scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import UnsupportedError
from octavo.models.config import ModelConfig, RopeConfig
from octavo.models.source import Source
from octavo.weights.tensor import Checkpoint

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",  # nomic-bert's first spelling: silu of a gate
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
    "relu2": "relu2",
}


def read_config_json(checkpoint: Checkpoint, family: str) -> tuple[ModelConfig, Source]:
    """The config by config.json's common keys, and the source of the family's own ones."""
    outer = Source(checkpoint, checkpoint.metadata)
    source = outer.under(_renamed(outer.table("text_config") or checkpoint.metadata))
    hidden = source.size("hidden_size")
    heads = source.size("num_attention_heads")
    head_dim = source.size("head_dim", max(1, hidden // heads))
    config = ModelConfig(
        architecture=family,
        name=checkpoint.path.name,
        vocab_size=source.size("vocab_size"),
        hidden_size=hidden,
        num_layers=source.size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=source.size("num_key_value_heads", heads),
        head_dim=head_dim,
        intermediate_size=source.size("intermediate_size"),
        norm_eps=source.number(_first(source, _NORM_EPS), _usual_eps(source)),
        norm_kind="rms" if source.has("rms_norm_eps") else "layer",
        context_length=source.size("max_position_embeddings"),
        rope=rope_of(source, head_dim),
        activation=_activation(source),
        bos_token_id=source.token_id("bos_token_id"),
        eos_token_ids=_eos_ids(source),
    )
    return config, source


_SPELLINGS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
    "ffn_dim": "intermediate_size",
    "ffn_hidden_size": "intermediate_size",
}


_DISTILBERT = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
}


def _renamed(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """GPT-2's, OPT's and DistilBERT's names for what others call otherwise. GPT-2's and Falcon's
    MLP is 4 times as wide as the model unless it says otherwise; Falcon's first files leave more
    unsaid."""
    spellings = _SPELLINGS | (_DISTILBERT if keys.get("model_type") == "distilbert" else {})
    new = {spellings.get(key, key): value for key, value in keys.items()}
    hidden, kind = new.get("hidden_size"), keys.get("model_type")
    wide = kind in ("gpt2", "falcon") and isinstance(hidden, int)
    if wide and new.get("intermediate_size") is None:
        new["intermediate_size"] = 4 * int(hidden or 0)
    if kind == "falcon" and new.get("max_position_embeddings") is None:
        new["max_position_embeddings"] = 2048
    return new


_NORM_EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")


def _usual_eps(source: Source) -> float | None:
    """Where configs need not say it: OPT's, Falcon's and DistilBERT's."""
    usual = {"opt": 1e-5, "falcon": 1e-5, "distilbert": 1e-12}
    return usual.get(str(source.get("model_type")))


def _first(source: Source, keys: tuple[str, ...]) -> str:
    """The first key that is there; the first one where none is, for the error to name."""
    return next((key for key in keys if source.has(key)), keys[0])


def layer_types(source: Source, num_layers: int) -> tuple[bool, ...] | None:
    """Per layer whether it slides, from `layer_types`; None where the key is absent."""
    kinds = source.get("layer_types")
    if kinds is None:
        return None
    known = ("sliding_attention", "full_attention")
    listed = isinstance(kinds, list) and len(kinds) == num_layers
    if not listed or any(kind not in known for kind in kinds):
        raise source.error("layer_types", kinds, f"{num_layers} of {' or '.join(known)}")
    return tuple(kind == "sliding_attention" for kind in kinds)


def rope_of(source: Source, head_dim: int, kind: str = "full_attention") -> RopeConfig:
    """The rotary settings of one kind of layer."""
    given = source.table("rope_parameters")
    given = given.get(kind, given) or {}
    old = source.table("rope_scaling")
    nested = source.under({**old, **given})
    base = nested.number("rope_theta", source.number("rope_theta", 10000.0))
    share = nested.number("partial_rotary_factor", source.number("partial_rotary_factor", 1.0))
    scaling = nested.text("rope_type", nested.text("type", "default"))
    scaling = _OLD_NAMES.get(scaling, scaling)
    dim = int(head_dim * share)
    long = scaling == "longrope"
    return RopeConfig(
        base=base,
        rotary_dim=dim,
        scaling="none" if scaling == "default" else scaling,
        params=_scaling_params(source, nested, scaling),
        short_factors=nested.numbers("short_factor", dim // 2) if long else (),
        long_factors=nested.numbers("long_factor", dim // 2) if long else (),
    )


def _scaling_params(source: Source, nested: Source, scaling: str) -> dict[str, float]:
    if scaling == "default":
        return {}
    if scaling not in ("linear", "llama3", "yarn", "longrope"):
        raise UnsupportedError(
            f"{source.checkpoint.path}: rope scaling: got '{scaling}', "
            "expected default, linear, llama3, yarn or longrope"
        )
    if scaling == "longrope":
        return _longrope_params(source, nested)
    params = {"factor": nested.number("factor")}
    if scaling in ("llama3", "yarn"):
        trained = source.size("max_position_embeddings")
        params["original_context"] = nested.size("original_max_position_embeddings", trained)
    params |= _numbers(nested, _PARAMS[scaling])
    if scaling == "yarn" and nested.has("truncate") and not nested.flag("truncate"):
        params["truncate"] = 0.0
    if scaling == "llama3" and params["low_freq_factor"] >= params["high_freq_factor"]:
        got = f"{params['low_freq_factor']} and {params['high_freq_factor']}"
        raise nested.error("low_freq_factor", got, "less than high_freq_factor")
    return params


_OLD_NAMES = {"su": "longrope"}


def _longrope_params(source: Source, nested: Source) -> dict[str, float]:
    """The trained context stands in the scaling or beside it; the factor follows from both."""
    longest = source.size("max_position_embeddings")
    key = "original_max_position_embeddings"
    original = nested.size(key, source.size(key, longest))
    params = {"original_context": original, "factor": nested.number("factor", longest / original)}
    return {**params, **_numbers(nested, {"attention_factor": None})}


_PARAMS: Mapping[str, Mapping[str, float | None]] = {
    "linear": {},
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": None,
        "mscale": None,
        "mscale_all_dim": None,
    },
}


def _numbers(source: Source, defaults: Mapping[str, float | None]) -> dict[str, float]:
    wanted = {k: d for k, d in defaults.items() if d is not None or source.has(k)}
    return {key: source.number(key, default) for key, default in wanted.items()}


def _activation(source: Source) -> str:
    keys = ("hidden_activation", "activation_function", "activation", "hidden_act")
    key = next((key for key in keys if source.has(key)), "hidden_act")
    name = source.text(key, "silu")
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UnsupportedError(
            f"{source.checkpoint.path}: '{key}': got '{name}', expected one of {known}"
        )
    return _ACTIVATIONS[name]


def _eos_ids(source: Source) -> tuple[int, ...]:
    value: Any = source.get("eos_token_id")
    many = value if isinstance(value, list) else [value]
    ids = (source.under({"eos_token_id": one}).token_id("eos_token_id") for one in many)
    return tuple(dict.fromkeys(i for i in ids if i is not None))

"""Tensor names: from those of Hugging Face files to the canonical ones, which are GGUF's.

Only names are mapped; numbers are left as they lie. Two things therefore differ from a GGUF file
of the same model, and a graph builder asks `checkpoint.format` for them: query and key rows of the
llama family are not permuted for interleaved rotary embedding, and gemma's norm weights lack the 1
that GGUF adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.encoder_names import (
    BERT_LAYER,
    BERT_TOP,
    DISTILBERT_LAYER,
    DISTILBERT_TOP,
    MODERNBERT_LAYER,
    MODERNBERT_TOP,
    OLD_NORMS,
    ROBERTA_TOP,
)

_ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_GATED_MLP = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "model.embed_positions.weight": "position_embd.weight",
    "lm_head.weight": "output.weight",
}
# Buffers that old exports stored; they are computed from the config.
_IGNORED = re.compile(
    r"\.rotary_emb\.inv_freq$|\.(masked_)?attn_bias$|\.attn\.(masked_)?bias$"
    r"|\.attention\.(masked_)?bias$|(^|\.)embeddings\.position_ids$"
)
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias)")


@dataclass(frozen=True)
class FamilyNames:
    """One family's names.

    layer: module path inside a layer -> canonical name; each has a weight.
    biases: those of `layer`'s keys that have a bias as well; may_bias: those that can have one.
    optional: those of `layer`'s keys that not every model or layer has. rename: other spellings of
    a name's beginning -> the usual ones, endings: of its end. positions: there is a table of
    learned positions. strip: prefix to take off every name; names that start with one of `skip`
    are left out. top: names outside the layers; needed: the canonical ones that must be there.
    """

    layer: Mapping[str, str]
    biases: frozenset[str] = frozenset()
    may_bias: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    rename: tuple[tuple[str, str], ...] = ()
    positions: bool = False
    strip: str = ""
    skip: tuple[str, ...] = ()
    endings: tuple[tuple[str, str], ...] = ()
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)
    needed: frozenset[str] = frozenset({"token_embd.weight", "output_norm.weight"})


_LLAMA = FamilyNames(
    {
        **_ATTENTION,
        **_GATED_MLP,
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    may_bias=frozenset({**_ATTENTION, **_GATED_MLP}),
)
_GEMMA3_LAYER = {
    **_ATTENTION,
    **_GATED_MLP,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

_POST_NORMS = {
    **_ATTENTION,
    **_GATED_MLP,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WITHOUT_HEAD_NORMS = {
    k: v for k, v in _GEMMA3_LAYER.items() if not k.endswith(("q_norm", "k_norm"))
}
_QKV_BIASES = frozenset({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})

_STARCODER2 = {
    **_ATTENTION,
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_OPT = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "fc1": "ffn_up",
    "fc2": "ffn_down",
    "self_attn_layer_norm": "attn_norm",
    "final_layer_norm": "ffn_norm",
}
_GPT2 = {
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
}
_NEOX = {
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_FALCON_NORMS = {
    "input_layernorm": "attn_norm",
    "ln_mlp": "attn_norm",  # where attention has a norm of its own
    "ln_attn": "attn_norm_2",
    "post_attention_layernorm": "ffn_norm",
}
_FALCON = {
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    **_FALCON_NORMS,
}

_ENCODER_NEEDS = frozenset({"token_embd.weight", "token_embd_norm.weight", "token_embd_norm.bias"})
_ROBERTA = FamilyNames(
    BERT_LAYER,
    biases=frozenset(BERT_LAYER),
    rename=(("encoder.layer.", "model.layers."),),
    endings=OLD_NORMS,
    positions=True,
    strip="roberta.",
    skip=("lm_head.",),
    top=ROBERTA_TOP,
    needed=_ENCODER_NEEDS,
)

FAMILIES: dict[str, FamilyNames] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "gemma": _LLAMA,
    "gemma2": FamilyNames(_WITHOUT_HEAD_NORMS),
    "olmo2": FamilyNames(_POST_NORMS),
    "olmo3": FamilyNames(_POST_NORMS),
    "exaone4": FamilyNames(_POST_NORMS),
    "cohere2": FamilyNames(
        {**_ATTENTION, **_GATED_MLP, "input_layernorm": "attn_norm"}, may_bias=_QKV_BIASES
    ),
    "stablelm": FamilyNames(
        _LLAMA.layer, may_bias=_QKV_BIASES | {"input_layernorm", "post_attention_layernorm"}
    ),
    "starcoder2": FamilyNames(_STARCODER2, may_bias=frozenset(_STARCODER2)),
    "opt": FamilyNames(
        _OPT,
        may_bias=frozenset(_OPT),
        rename=(
            ("model.decoder.final_layer_norm.", "model.norm."),
            ("model.decoder.", "model."),
            ("decoder.", "model."),
        ),
        positions=True,
    ),
    "gpt2": FamilyNames(
        _GPT2,
        may_bias=frozenset(_GPT2),
        strip="transformer.",
        rename=(
            ("h.", "model.layers."),
            ("wte.", "model.embed_tokens."),
            ("wpe.", "model.embed_positions."),
            ("ln_f.", "model.norm."),
        ),
        positions=True,
    ),
    "gpt_neox": FamilyNames(
        _NEOX,
        may_bias=frozenset(_NEOX),
        strip="gpt_neox.",
        rename=(
            ("layers.", "model.layers."),
            ("embed_in.", "model.embed_tokens."),
            ("final_layer_norm.", "model.norm."),
            ("embed_out.", "lm_head."),
        ),
    ),
    "falcon": FamilyNames(
        _FALCON,
        may_bias=frozenset(_FALCON),
        optional=frozenset(_FALCON_NORMS),
        strip="transformer.",
        rename=(
            ("h.", "model.layers."),
            ("word_embeddings.", "model.embed_tokens."),
            ("ln_f.", "model.norm."),
        ),
    ),
    "qwen3": FamilyNames(
        {**_LLAMA.layer, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    ),
    "phi3": FamilyNames(
        {
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
        }
    ),
    "glm4": FamilyNames(
        {
            **_ATTENTION,
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "input_layernorm": "attn_norm",
            "post_self_attn_layernorm": "post_attention_norm",
            "post_attention_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
        },
        may_bias=_QKV_BIASES,
    ),
    "qwen2": FamilyNames(_LLAMA.layer, biases=_QKV_BIASES),
    "gemma3_text": FamilyNames(_GEMMA3_LAYER),
    "bert": replace(_ROBERTA, strip="bert.", skip=("cls.",), top=BERT_TOP),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": FamilyNames(
        DISTILBERT_LAYER,
        biases=frozenset(DISTILBERT_LAYER),
        rename=(("transformer.layer.", "model.layers."),),
        positions=True,
        strip="distilbert.",
        skip=("vocab_",),
        top=DISTILBERT_TOP,
        needed=_ENCODER_NEEDS,
    ),
    "modernbert": FamilyNames(
        MODERNBERT_LAYER,
        may_bias=frozenset(MODERNBERT_LAYER),
        rename=(("layers.", "model.layers."),),
        strip="model.",
        skip=("decoder.",),
        optional=frozenset({"attn_norm"}),
        top=MODERNBERT_TOP,
        needed=frozenset({"token_embd.weight", "token_embd_norm.weight", "output_norm.weight"}),
    ),
    "gemma3": FamilyNames(
        _GEMMA3_LAYER,
        strip="language_model.",
        skip=("vision_tower.", "multi_modal_projector.", "model.vision_tower."),
    ),
}
"""Keyed by config.json's model_type. A new family adds its entry here."""


def map_names(stored: Iterable[str], config: Mapping[str, Any]) -> dict[str, str]:
    """Stored name -> canonical name, for every tensor that the model uses.

    Raises UnsupportedError for an unknown family, FormatError listing all unexpected and missing
    names at once.
    """
    family = _family(config)
    stored = list(stored)
    num_layers = _num_layers(config, len(stored))
    mapped: dict[str, str] = {}
    found: set[str] = set()
    unexpected: list[str] = []
    for name in stored:
        if name.startswith(family.skip) or _IGNORED.search(name):
            continue
        canonical = _canonical(_usual(name, family), family, num_layers)
        if canonical is None or canonical in found:
            unexpected.append(name)
        else:
            mapped[name] = canonical
            found.add(canonical)
    _check(unexpected, sorted(_expected(family, num_layers, config) - found))
    if config.get("tie_word_embeddings") is True:
        mapped = {name: value for name, value in mapped.items() if value != "output.weight"}
    return mapped


def _usual(name: str, family: FamilyNames) -> str:
    name = name.removeprefix(family.strip)
    for old, new in family.rename:
        if name.startswith(old):
            name = new + name.removeprefix(old)
            break
    for old, new in family.endings:
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _family(config: Mapping[str, Any]) -> FamilyNames:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UnsupportedError(
            f"weights: config.json has model_type {model_type!r:.80}, which is not supported yet;"
            f" expected one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def _num_layers(config: Mapping[str, Any], num_tensors: int) -> int:
    text_config = config.get("text_config")
    holder = text_config if isinstance(text_config, dict) else config
    value = holder.get("num_hidden_layers", holder.get("n_layer", holder.get("n_layers")))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= num_tensors:
        raise FormatError(
            f"weights: config.json has num_hidden_layers {value!r:.80}, expected at least 1 and no"
            f" more than the {num_tensors} tensors there are"
        )
    return value


def _canonical(name: str, family: FamilyNames, num_layers: int) -> str | None:
    if name in family.top:
        return family.top[name]
    match = _LAYER.fullmatch(name)
    if match is None or int(match[1]) >= num_layers or match[2] not in family.layer:
        return None
    if match[3] == "bias" and match[2] not in family.biases | family.may_bias:
        return None
    return f"blk.{match[1]}.{family.layer[match[2]]}.{match[3]}"


def _expected(family: FamilyNames, num_layers: int, config: Mapping[str, Any]) -> set[str]:
    parts = [f"{name}.weight" for path, name in family.layer.items() if path not in family.optional]
    parts += [f"{family.layer[path]}.bias" for path in family.biases]
    names = {f"blk.{layer}.{part}" for layer in range(num_layers) for part in parts}
    names |= family.needed
    if family.positions:
        names.add("position_embd.weight")
    if config.get("tie_word_embeddings") is False and "lm_head.weight" in family.top:
        names.add("output.weight")
    return names


def _check(unexpected: list[str], missing: list[str]) -> None:
    if not unexpected and not missing:
        return
    problems = []
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({_some(unexpected)})")
    if missing:
        problems.append(f"{len(missing)} missing ({_some(missing)})")
    raise FormatError(f"weights: tensor names do not fit the config: {', '.join(problems)}")


def _some(names: list[str], limit: int = 8) -> str:
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    # ascii(): names are untrusted, and a lone surrogate could not be printed.
    return ", ".join(ascii(name[:120])[1:-1] for name in names[:limit]) + more

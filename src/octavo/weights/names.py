"""Tensor names: from those of Hugging Face files to the canonical ones, which are GGUF's.

Only names are mapped; numbers are left as they lie. Two things therefore differ from a GGUF file
of the same model, and a graph builder asks `checkpoint.format` for them: query and key rows of the
llama family are not permuted for interleaved rotary embedding, and gemma's norm weights lack the 1
that GGUF adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from octavo.records import replace
from octavo.weights.encoder_names import (
    BERT_LAYER,
    BERT_TOP,
    DISTILBERT_LAYER,
    DISTILBERT_TOP,
    MODERNBERT_LAYER,
    MODERNBERT_TOP,
    NOMIC_LAYER,
    NOMIC_TOP,
    OLD_NORMS,
    ROBERTA_TOP,
)
from octavo.weights.names_deepseek import DEEPSEEK
from octavo.weights.names_experts import MIXTURES
from octavo.weights.naming import ATTENTION as _ATTENTION
from octavo.weights.naming import GATED_MLP as _GATED_MLP
from octavo.weights.naming import FamilyNames, canonical_by, map_by
from octavo.weights.stored_names import stored_by

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
    **MIXTURES,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
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
        beside={"ln_mlp": "attn_norm_2"},
        strip="transformer.",
        rename=(
            ("h.", "model.layers."),
            ("word_embeddings.", "model.embed_tokens."),
            ("ln_f.", "model.norm."),
        ),
    ),
    "bitnet": FamilyNames(
        {
            **_LLAMA.layer,
            "self_attn.attn_sub_norm": "attn_sub_norm",
            "mlp.ffn_sub_norm": "ffn_sub_norm",
        },
        may_bias=frozenset(_ATTENTION),
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
    "nomic_bert": FamilyNames(
        NOMIC_LAYER,
        biases=frozenset({"norm1", "norm2"}),
        may_bias=frozenset(NOMIC_LAYER),
        rename=(("encoder.layers.", "model.layers."),),
        strip="nomic_bert.",
        skip=("cls.",),
        top=NOMIC_TOP,
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


def canonical_name(name: str, model_type: str, num_layers: int) -> str | None:
    """The canonical name of one stored tensor; None for one that such a model does not have."""
    return canonical_by(FAMILIES[model_type], name, num_layers)


def stored_name(
    canonical: str, model_type: str, others: Collection[str] = (), *, bare: bool = False
) -> str | None:
    """What a Hugging Face file of this family calls a tensor; None for what it does not hold.

    model_type: a key of FAMILIES. others: canonical names of the model's tensors. bare: the file is
    of the model without a head.
    """
    return stored_by(FAMILIES[model_type], canonical, others, bare=bare)


def map_names(
    stored: Iterable[str],
    config: Mapping[str, Any],
    *,
    where: str = "weights",
    files: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Stored name -> canonical name, for every tensor that the model uses.

    where: file that says which tensors there are, for errors. files: which one holds each.
    Raises UnsupportedError for an unknown family, FormatError listing all unexpected and missing
    names at once.
    """
    return map_by(FAMILIES, stored, config, where, files or {})

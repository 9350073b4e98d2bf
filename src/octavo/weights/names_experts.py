"""Names of the families with mixtures of experts."""

from __future__ import annotations

from octavo.weights.naming import ATTENTION, GATED_MLP, FamilyNames

_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_EXPERTS = {
    "mlp.experts.*.gate_proj": "ffn_gate",
    "mlp.experts.*.up_proj": "ffn_up",
    "mlp.experts.*.down_proj": "ffn_down",
}
_SHARED = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_ROUTER = {"mlp.gate": "ffn_gate_inp"}
_QKV = frozenset({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
_GRANITE_SHARED = {
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
_GRANITE = FamilyNames(
    {
        **ATTENTION,
        **_NORMS,
        **_GRANITE_SHARED,
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.input_linear": "ffn_gate_up_exps",
        "block_sparse_moe.output_linear": "ffn_down_exps",
    },
    may_bias=frozenset(ATTENTION),
    optional=frozenset(_GRANITE_SHARED),
)

MIXTURES: dict[str, FamilyNames] = {
    "mixtral": FamilyNames(
        {**ATTENTION, **_NORMS, "block_sparse_moe.gate": "ffn_gate_inp"},
        experts={
            "block_sparse_moe.experts.*.w1": "ffn_gate",
            "block_sparse_moe.experts.*.w2": "ffn_down",
            "block_sparse_moe.experts.*.w3": "ffn_up",
        },
    ),
    "qwen2_moe": FamilyNames(
        {**ATTENTION, **_NORMS, **_ROUTER, **_SHARED, **GATED_MLP},
        may_bias=_QKV,
        optional=frozenset({**_ROUTER, **_SHARED, **GATED_MLP}),
        experts=_EXPERTS,
    ),
    "qwen3_moe": FamilyNames(
        {**ATTENTION, **_NORMS, **_QK_NORMS, **_ROUTER, **GATED_MLP},
        may_bias=frozenset(ATTENTION),
        optional=frozenset({**_ROUTER, **GATED_MLP}),
        experts=_EXPERTS,
    ),
    "olmoe": FamilyNames(
        {**ATTENTION, **_NORMS, **_QK_NORMS, **_ROUTER},
        may_bias=frozenset(ATTENTION),
        experts=_EXPERTS,
    ),
    "gpt_oss": FamilyNames(
        {
            **ATTENTION,
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
        },
        biases=frozenset({"mlp.router"}),
        may_bias=frozenset(ATTENTION),
        plain={
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        },
    ),
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
}
"""Keyed by config.json's model_type."""

"""Names of DeepSeek's families: latent attention, dense layers first, then experts."""

from __future__ import annotations

from octavo.weights.naming import GATED_MLP, FamilyNames

_EITHER_QUERY = {
    "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
}
_SHARED = {
    f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")
}
_ROUTER = {"mlp.gate": "ffn_gate_inp"}
_CHOICE = "mlp.gate.e_score_correction_bias"
_OPTIONAL = {**_EITHER_QUERY, **GATED_MLP, **_SHARED, **_ROUTER}

DEEPSEEK = FamilyNames(
    {
        **_OPTIONAL,
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        "self_attn.kv_b_proj": "attn_kv_b",
        "self_attn.o_proj": "attn_output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    plain={_CHOICE: "exp_probs_b.bias"},
    optional=frozenset({*_OPTIONAL, _CHOICE}),
    experts={f"mlp.experts.*.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    extra_layers="num_nextn_predict_layers",
)
"""For config.json's model_type deepseek_v2 and deepseek_v3."""

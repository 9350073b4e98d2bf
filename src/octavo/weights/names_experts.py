"""Names of the families with mixtures of experts."""

from __future__ import annotations

from octavo.weights.naming import ATTENTION, FamilyNames

_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

MIXTURES: dict[str, FamilyNames] = {
    "mixtral": FamilyNames(
        {**ATTENTION, **_NORMS, "block_sparse_moe.gate": "ffn_gate_inp"},
        experts={
            "block_sparse_moe.experts.*.w1": "ffn_gate",
            "block_sparse_moe.experts.*.w2": "ffn_down",
            "block_sparse_moe.experts.*.w3": "ffn_up",
        },
    ),
}
"""Keyed by config.json's model_type."""

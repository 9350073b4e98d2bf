"""Names that encoders' Hugging Face files use, for `names.py`. Canonical ones are GGUF's, in which
"cls" is the dense layer of a classification head, "cls.norm" its norm and "cls.output" what gives
the labels."""

from __future__ import annotations

_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
_TYPES = {"embeddings.token_type_embeddings.weight": "token_types.weight"}
OLD_NORMS = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))
"""How files of TensorFlow's time call them."""


def _both(module: str, name: str) -> dict[str, str]:
    return {f"{module}.{part}": f"{name}.{part}" for part in ("weight", "bias")}


BERT_TOP = {
    **_EMBEDDINGS,
    **_TYPES,
    **_both("pooler.dense", "cls"),
    **_both("classifier", "cls.output"),
}
ROBERTA_TOP = {
    **_EMBEDDINGS,
    **_TYPES,
    **_both("pooler.dense", "pooler"),  # not what its classifiers read
    **_both("classifier.dense", "cls"),
    **_both("classifier.out_proj", "cls.output"),
}
DISTILBERT_TOP = {
    **_EMBEDDINGS,
    **_both("pre_classifier", "cls"),
    **_both("classifier", "cls.output"),
}
MODERNBERT_TOP = {
    "embeddings.tok_embeddings.weight": "token_embd.weight",
    **_both("embeddings.norm", "token_embd_norm"),
    **_both("final_norm", "output_norm"),
    **_both("head.dense", "cls"),
    **_both("head.norm", "cls.norm"),
    **_both("classifier", "cls.output"),
}
NOMIC_TOP = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    **_TYPES,
    **_both("emb_ln", "token_embd_norm"),
    **_both("pooler.dense", "cls"),
    **_both("classifier", "cls.output"),
}
NOMIC_LAYER = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
    "norm2": "layer_output_norm",
}
BERT_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
DISTILBERT_LAYER = {
    "attention.q_lin": "attn_q",
    "attention.k_lin": "attn_k",
    "attention.v_lin": "attn_v",
    "attention.out_lin": "attn_output",
    "sa_layer_norm": "attn_output_norm",
    "ffn.lin1": "ffn_up",
    "ffn.lin2": "ffn_down",
    "output_layer_norm": "layer_output_norm",
}
MODERNBERT_LAYER = {
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}

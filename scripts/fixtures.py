"""Writes tests/fixtures/families: tiny random models of every family, with the logits that
transformers computes in float32.

    python scripts/fixtures.py [NAME ...]

Needs torch and transformers, which nothing else here does. What is written is committed: at most
200 kB a family. Adding one is a line in FAMILIES.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "families"
VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, LENGTH = 96, 32, 2, 4, 2, 40
MAX_BYTES = 200_000

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0, 1.1],
    "long_factor": [1.5, 4.0],
}
_FALCON_NEW = {
    "new_decoder_architecture": True,
    "num_kv_heads": KV_HEADS,
    "ffn_hidden_size": 64,
}
_LATENT = {
    "num_key_value_heads": HEADS,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "head_dim": 8,
    "first_k_dense_replace": 1,
    "intermediate_size": 48,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    },
}
_V2_ROUTES = {
    "topk_method": "group_limited_greedy",
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.0,
}
_V3_ROUTES = {"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    # name: (transformers' class stem, settings besides SIZES)
    "gemma": ("Gemma", {"head_dim": 16}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
        },
    ),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
    "exaone4": (
        "Exaone4",
        {"num_hidden_layers": 4, "sliding_window": 12, "sliding_window_pattern": 4},
    ),
    "olmo3": ("Olmo3", {"num_hidden_layers": 4, "sliding_window": 12}),
    "glm4": ("Glm4", {"attention_bias": True, "head_dim": 8, "partial_rotary_factor": 0.5}),
    "phi3-longrope": ("Phi3", {"rope_parameters": _LONGROPE}),
    "starcoder2": ("Starcoder2", {"sliding_window": 12, "use_bias": True}),
    "stablelm": ("StableLm", {"use_qkv_bias": True, "partial_rotary_factor": 0.25}),
    "cohere2": ("Cohere2", {"num_hidden_layers": 4, "sliding_window": 12, "logit_scale": 0.25}),
    "gpt-neox": ("GPTNeoX", {"rotary_pct": 0.5, "num_key_value_heads": HEADS}),
    "gpt-neox-serial": (
        "GPTNeoX",
        {"use_parallel_residual": False, "num_key_value_heads": HEADS},
    ),
    "opt": ("OPT", {"ffn_dim": 64, "word_embed_proj_dim": 32, "num_key_value_heads": HEADS}),
    # 7B's, 40B's and 11B's shapes, and the first one's without parallel blocks
    "falcon-multiquery": ("Falcon", {"multi_query": True, "ffn_hidden_size": 64}),
    "falcon-grouped": ("Falcon", _FALCON_NEW),
    "falcon-one-norm": ("Falcon", {**_FALCON_NEW, "num_ln_in_parallel_attn": 1}),
    "falcon-serial": (
        "Falcon",
        {"multi_query": False, "parallel_attn": False, "bias": True, "ffn_hidden_size": 64},
    ),
    "qwen2-moe": (
        "Qwen2Moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 32,
            "num_hidden_layers": 3,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3-moe": (
        "Qwen3Moe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 16,
            "norm_topk_prob": True,
            "head_dim": 16,
            "decoder_sparse_step": 2,
        },
    ),
    "olmoe": ("Olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 16}),
    "granite-moe": (
        "GraniteMoeShared",
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "intermediate_size": 16,
            "shared_intermediate_size": 32,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
        },
    ),
    "deepseek-v2": ("DeepseekV2", {**_LATENT, "q_lora_rank": 24, **_V2_ROUTES}),
    "deepseek-v2-lite": ("DeepseekV2", {**_LATENT, "q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek-v3": ("DeepseekV3", {**_LATENT, "q_lora_rank": 24, **_V3_ROUTES}),
    "bitnet": ("BitNet", {}),
    "llama-bias": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-yarn": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
}


def main(names: list[str]) -> None:
    for name in names or FAMILIES:
        folder = OUT / name
        if folder.exists():
            shutil.rmtree(folder)
        write(name, folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {size / 1000:.0f} kB")
        if size > MAX_BYTES:
            raise SystemExit(f"{name} has {size} bytes, at most {MAX_BYTES} are allowed")


def write(name: str, folder: Path) -> None:
    """config.json, model.safetensors and expected.npz of one family."""
    stem, settings = FAMILIES[name]
    config = getattr(transformers, f"{stem}Config")(**{**SIZES, **settings})
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, f"{stem}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            _randomise(key, parameter)
        ids = torch.randint(3, VOCAB, (LENGTH,))
        logits = model(ids[None]).logits[0].numpy()
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    shown = json.loads((folder / "config.json").read_text())
    shown.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(shown, indent=1) + "\n")
    np.savez_compressed(folder / "expected.npz", input_ids=ids.numpy(), logits=logits)


def _randomise(name: str, parameter: torch.Tensor) -> None:
    """Weights large enough that every part of a layer shows in the logits; norms not all 1."""
    if parameter.ndim == 1:
        base = 0.0 if name.endswith("bias") else 1.0
        parameter.copy_(base + 0.2 * torch.randn_like(parameter))
    else:
        parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)


if __name__ == "__main__":
    main(sys.argv[1:])

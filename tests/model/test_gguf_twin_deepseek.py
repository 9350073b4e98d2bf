"""DeepSeek rewritten as GGUF holds it: kv_b split into k_b (turned) and v_b, as llama.cpp's
converter does today, or whole, as in older files; experts stacked; YaRN's weights in its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import float_tensor, run_tokens
from octavo.errors import FormatError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import Checkpoint, Tensor, dequantize, open_checkpoint

FIXTURES = Path(__file__).parent.parent / "fixtures" / "families"
FAMILIES = ("deepseek-v2", "deepseek-v2-lite", "deepseek-v3")


def metadata_of(c: dict[str, Any], *, split: bool) -> dict[str, Any]:
    """GGUF's keys for a config.json."""
    rope, latent = c["rope_parameters"], c["kv_lora_rank"]
    key, value = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["v_head_dim"]
    keys = {
        "block_count": c["num_hidden_layers"],
        "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"],
        "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": 1 if split else c["num_attention_heads"],
        "attention.key_length": latent + c["qk_rope_head_dim"] if split else key,
        "attention.value_length": latent if split else value,
        "attention.key_length_mla": key if split else None,
        "attention.value_length_mla": value if split else None,
        "attention.kv_lora_rank": latent,
        "attention.q_lora_rank": c["q_lora_rank"],
        "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "leading_dense_block_count": c["first_k_dense_replace"],
        "expert_count": c["n_routed_experts"],
        "expert_used_count": c["num_experts_per_tok"],
        "expert_shared_count": c["n_shared_experts"],
        "expert_feed_forward_length": c["moe_intermediate_size"],
        "expert_weights_scale": c["routed_scaling_factor"],
        "expert_weights_norm": c.get("norm_topk_prob") or None,
        "expert_gating_func": 2 if c["model_type"] == "deepseek_v3" else None,
        "expert_group_count": c.get("n_group"),
        "expert_group_used_count": c.get("topk_group"),
        "rope.dimension_count": c["qk_rope_head_dim"],
        "rope.freq_base": rope["rope_theta"],
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
    }
    named = {f"deepseek2.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": "deepseek2", **named}


def split_kv(name: str, tensor: Tensor, heads: int, nope: int) -> list[Tensor]:
    """k_b [H, R, nope] and v_b [H, value, R]."""
    rows = dequantize(tensor)
    each = rows.reshape(heads, -1, rows.shape[1])
    k_b, v_b = each[:, :nope].transpose(0, 2, 1), each[:, nope:]
    return [
        float_tensor(name.replace("attn_kv_b", part), np.ascontiguousarray(array))
        for part, array in (("attn_k_b", k_b), ("attn_v_b", v_b))
    ]


def stacked(tensors: dict[str, Tensor], layers: int, experts: int) -> list[Tensor]:
    found = []
    for layer in range(layers):
        for part in ("ffn_gate", "ffn_up", "ffn_down"):
            names = [f"blk.{layer}.{part}.{e}.weight" for e in range(experts)]
            if names[0] in tensors:
                arrays = [dequantize(tensors.pop(name)) for name in names]
                found.append(float_tensor(f"blk.{layer}.{part}_exps.weight", np.stack(arrays)))
    return found


def twin(family: str, *, split: bool) -> Checkpoint:
    source = open_checkpoint(FIXTURES / family)
    c = dict(source.metadata)
    tensors = dict(source.tensors)
    made = stacked(tensors, c["num_hidden_layers"], c["n_routed_experts"])
    for name in [name for name in tensors if split and ".attn_kv_b." in name]:
        whole = tensors.pop(name)
        made += split_kv(name, whole, c["num_attention_heads"], c["qk_nope_head_dim"])
    tensors |= {tensor.name: tensor for tensor in made}
    return Checkpoint(Path(f"{family}.gguf"), "gguf", metadata_of(c, split=split), tensors, 0)


@pytest.mark.parametrize("split", [True, False], ids=["k_b-v_b", "kv_b"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family: str, split: bool) -> None:
    checkpoint = twin(family, split=split)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(max_tokens=64, max_seqs=64)
    executable = get_backend("reference").compile(graph, checkpoint, config, options)
    with np.load(FIXTURES / family / "expected.npz") as expected:
        logits = run_tokens(executable, expected["input_ids"].tolist(), 64)
        np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_holds_latents_alone(family: str) -> None:
    checkpoint = open_checkpoint(FIXTURES / family)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(kv_dtype="f32", max_tokens=64, max_seqs=64)
    plan = get_backend("reference").plan(graph, checkpoint, config, options)
    c = checkpoint.metadata
    row = c["kv_lora_rank"] + c["qk_rope_head_dim"]
    assert config.cached_per_token == c["num_hidden_layers"] * row
    assert plan.kv_bytes_per_block == options.block_size * 4 * config.cached_per_token


def test_heads_of_rotated_elements_alone_are_refused() -> None:
    checkpoint = twin("deepseek-v2-lite", split=True)
    metadata = {**checkpoint.metadata, "deepseek2.attention.key_length_mla": 8}
    broken = Checkpoint(checkpoint.path, "gguf", metadata, checkpoint.tensors, 0)
    with pytest.raises(FormatError, match=r"key_length_mla': got 8, expected more than 8"):
        config_from(broken)

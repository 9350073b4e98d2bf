"""The golden models rewritten as GGUF holds them: the same logits by the other set of conventions.

llama.cpp's converter reorders the rows of q and k of Llama models for interleaved rotation, adds 1
to Gemma's norm weights, writes Llama 3.1's scaling as divisors of the frequencies, and stacks
experts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import float_tensor, run_tokens
from octavo.models import RopeConfig, build_graph, config_from, fit_tensors
from octavo.models.rope import inverse_frequencies
from octavo.weights import Checkpoint, Tensor, dequantize, open_checkpoint

GOLDEN = Path(__file__).parent.parent / "golden" / "tiny"
ARCHITECTURES = {
    "llama": "llama",
    "llama-3.1-rope": "llama",
    "qwen2": "qwen2",
    "mistral-window": "llama",
    "gemma3": "gemma3",
    "mixtral": "llama",
    "qwen3-moe": "qwen3moe",
    "gpt-oss": "gpt-oss",
}


def metadata_of(config: dict[str, Any], architecture: str) -> dict[str, Any]:
    """GGUF's keys for a config.json."""
    rope = config["rope_parameters"]
    heads = config["num_attention_heads"]
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim") or config["hidden_size"] // heads,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": rope.get("full_attention", rope)["rope_theta"],
    }
    if config.get("num_local_experts"):
        keys["expert_count"] = config["num_local_experts"]
        keys["expert_used_count"] = config["num_experts_per_tok"]
        if architecture != "llama":
            hidden = config.get("moe_intermediate_size", config["intermediate_size"])
            keys["expert_feed_forward_length"] = hidden
    if rope.get("rope_type") == "yarn":
        keys["rope.scaling.type"] = "yarn"
        keys["rope.scaling.factor"] = rope["factor"]
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config["sliding_window"]
    named = {f"{architecture}.{key}": value for key, value in keys.items()}
    return {"general.architecture": architecture, **named}


def interleaved(array: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of each head reordered from (first half, second half) to pairs."""
    halves = array.reshape(-1, 2, head_dim // 2, array.shape[-1])
    return halves.swapaxes(1, 2).reshape(array.shape)


def tensor_of(tensor: Tensor, architecture: str, head_dim: int) -> Tensor:
    array = dequantize(tensor)
    if architecture == "gemma3" and "norm" in tensor.name:
        array = array + 1
    if architecture == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        array = interleaved(array, head_dim)
    return float_tensor(tensor.name, array)


def frequency_divisors(rope: dict[str, float], head_dim: int) -> np.ndarray:
    """rope_freqs.weight, as the converter computes it."""
    plain = inverse_frequencies(RopeConfig(rope["rope_theta"], head_dim))
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for frequency in plain.astype(np.float64):
        wavelength = 2 * np.pi / frequency
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def twin(family: str) -> Checkpoint:
    source = open_checkpoint(GOLDEN / family)
    source = fit_tensors(config_from(source), source)
    config, architecture = dict(source.metadata), ARCHITECTURES[family]
    metadata = metadata_of(config, architecture)
    head_dim = metadata[f"{architecture}.attention.key_length"]
    tensors = {
        name: tensor_of(tensor, architecture, head_dim) for name, tensor in source.tensors.items()
    }
    if config["rope_parameters"].get("rope_type") == "llama3":
        divisors = frequency_divisors(config["rope_parameters"], head_dim)
        tensors["rope_freqs.weight"] = float_tensor("rope_freqs.weight", divisors)
    return Checkpoint(Path(f"{family}.gguf"), "gguf", metadata, tensors, 0)


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_logits(family: str) -> None:
    checkpoint = twin(family)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    options = BackendOptions(max_tokens=96, max_seqs=96)
    graph = build_graph(config, checkpoint.tensors)
    executable = get_backend("reference").compile(graph, checkpoint, config, options)
    with np.load(GOLDEN / family / "expected.npz") as expected:
        logits = run_tokens(executable, expected["input_ids"].tolist(), 96)
        np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)

"""A GGUF file as a bfloat16 Hugging Face folder, for engines that read no GGUF on a CPU.

The weights are those of the file, dequantized: what such an engine would be given by someone who
has the unquantized model. The tokenizer is the file's, good enough to measure with: its splitting
of text into words is GPT-2's for every model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.models import ModelConfig, config_from
from octavo.weights import Checkpoint, dequantize, open_checkpoint

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


CONTROL = 3  # tokenizer.ggml.token_type of control tokens


def hf_folder(model: Path, cache: Path) -> Path | None:
    """The folder, written on the first call; None for a family this does not know."""
    checkpoint = open_checkpoint(model)
    config = config_from(checkpoint)
    if config.architecture not in ARCHITECTURES:
        return None
    folder = cache / f"{model.stem}-bf16"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(checkpoint, config, folder / "model.safetensors")
        _write_tokenizer(checkpoint.metadata, folder)
        (folder / "config.json").write_text(json.dumps(_config(checkpoint, config), indent=2))
    return folder


def _config(checkpoint: Checkpoint, c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURES[c.architecture]],
        "model_type": c.architecture,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": c.activation,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope.base,
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context_length,
        "tie_word_embeddings": "output.weight" not in checkpoint.tensors,
        "torch_dtype": "bfloat16",
        "eos_token_id": checkpoint.metadata["tokenizer.ggml.eos_token_id"],
    }


def _write_weights(checkpoint: Checkpoint, config: ModelConfig, path: Path) -> None:
    """safetensors, tensor after tensor: https://github.com/huggingface/safetensors#format"""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in checkpoint.tensors.items():
        size = 2 * int(np.prod(tensor.shape))
        place = [offset, offset + size]
        header[_name(name)] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": place}
        offset += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in checkpoint.tensors.items():
            values = dequantize(tensor)
            if config.rope.interleaved and (".attn_q." in name or ".attn_k." in name):
                values = _halves_apart(values, config.head_dim)
            file.write(_bfloat16(values).tobytes())


def _write_tokenizer(metadata: Mapping[str, Any], folder: Path) -> None:
    """tokenizer.json of a byte-level BPE vocabulary, and tokenizer_config.json."""
    tokens = list(metadata["tokenizer.ggml.tokens"])
    kinds = list(metadata["tokenizer.ggml.token_type"])
    added = [
        {"id": i, "content": token, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == CONTROL
    ]
    merges = [list(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level |= {"use_regex": True}
    vocabulary = {token: i for i, token in enumerate(tokens)}
    parts = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    (folder / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _name(name: str) -> str:
    if name in TOP:
        return TOP[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def _halves_apart(rows: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """GGUF's llama files pair neighbouring rows of a head for rotation; Hugging Face pairs row i
    with row i + head_dim / 2."""
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)

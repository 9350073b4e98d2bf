"""Hyperparameters from GGUF metadata and config.json, in every spelling, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import FormatError, UnsupportedError
from octavo.models import ModelConfig, config_from
from octavo.weights import Checkpoint


def gguf(architecture: str = "llama", **keys: Any) -> Checkpoint:
    """A GGUF checkpoint by metadata alone; double underscores stand for dots, None removes."""
    basic = {
        "block_count": 4,
        "context_length": 1000,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 100,
    }
    given = {key.replace("__", "."): value for key, value in keys.items()}
    own = {f"{architecture}.{k}": v for k, v in basic.items()}
    own |= {
        k if "." in k and k.split(".")[0] in _GENERAL else f"{architecture}.{k}": v
        for k, v in given.items()
    }
    own = {k: v for k, v in own.items() if v is not None}
    return Checkpoint(
        Path("model.gguf"), "gguf", {"general.architecture": architecture, **own}, {}, 0
    )


_GENERAL = ("general", "tokenizer")


def folder(model_type: str = "llama", **keys: Any) -> Checkpoint:
    """A Hugging Face folder by config.json alone; None removes a key."""
    basic = {
        "model_type": model_type,
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 1000,
        "rms_norm_eps": 1e-5,
    }
    given = {k: v for k, v in {**basic, **keys}.items() if v is not None}
    return Checkpoint(Path("folder"), "safetensors", given, {}, 0)


def test_gguf_basics() -> None:
    config = config_from(
        gguf(general__name="Tiny", tokenizer__ggml__eos_token_id=7, tokenizer__ggml__eot_token_id=9)
    )
    assert (config.architecture, config.name, config.vocab_size) == ("llama", "Tiny", 100)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 16)
    assert config.rope.base == 10000.0
    assert config.rope.interleaved
    assert config.eos_token_ids == (7, 9)
    assert config.bos_token_id is None


def test_gguf_defaults_and_per_layer_lists() -> None:
    config = config_from(
        gguf(
            attention__head_count_kv=None,
            attention__key_length=32,
            feed_forward_length=np.array([128, 128], np.int32),
            vocab_size=None,
            tokenizer__ggml__tokens=["a", "b", "c"],
        )
    )
    assert (config.num_kv_heads, config.head_dim, config.intermediate_size) == (4, 32, 128)
    assert config.vocab_size == 3
    with pytest.raises(FormatError, match=r"feed_forward_length'.*one number for all layers"):
        config_from(gguf(feed_forward_length=[128, 96]))


@pytest.mark.parametrize(
    ("keys", "scaling", "params"),
    [
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, "linear", {"factor": 4}),
        ({"rope__scale_linear": 8.0}, "linear", {"factor": 8}),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 1.0}, "none", {}),
        ({"rope__scaling__type": "none"}, "none", {}),
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__original_context_length": 250,
            },
            "yarn",
            {"factor": 4, "original_context": 250},
        ),
    ],
)
def test_gguf_rope_scaling(keys: dict[str, Any], scaling: str, params: dict[str, float]) -> None:
    rope = config_from(gguf("qwen2", **keys)).rope
    assert (rope.scaling, rope.params, rope.interleaved) == (scaling, params, False)


def gemma(**keys: Any) -> Checkpoint:
    return gguf("gemma3", attention__sliding_window=512, block_count=7, **keys)


def test_gguf_gemma3_fills_in_what_the_file_leaves_out() -> None:
    config = config_from(gemma(rope__freq_base=1e6))
    assert config.sliding_layers == (True,) * 5 + (False, True)
    assert [config.window_of(layer) for layer in (0, 5)] == [512, None]
    assert config.rope_local is not None
    assert (config.rope.base, config.rope_local.base) == (1e6, 1e4)
    assert (config.embedding_scale, config.activation) == (8.0, "gelu")
    assert (config.norm_unit_offset, config.attention_scale) == (0.0, None)


def test_gguf_gemma3_pattern_and_scaling_of_full_layers_only() -> None:
    config = config_from(
        gemma(
            attention__sliding_window_pattern=2,
            rope__scaling__type="linear",
            rope__scaling__factor=8.0,
        )
    )
    assert config.sliding_layers == (True, False) * 3 + (True,)
    assert config.rope_local is not None
    assert (config.rope.scaling, config.rope_local.scaling) == ("linear", "none")
    flags = [True, False, False, True, False, False, True]
    assert config_from(gemma(attention__sliding_window_pattern=flags)).sliding_layers == tuple(
        flags
    )


def test_gguf_gemma3_27b_scales_queries_by_hidden_size_per_head() -> None:
    checkpoint = gguf("gemma3", attention__sliding_window=512, block_count=62)
    assert config_from(checkpoint).attention_scale == 16**-0.5


def json_rope(**keys: Any) -> Any:
    return config_from(folder(**keys)).rope


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
    ids=["new", "old", "older"],
)
def test_json_rope_in_every_spelling(keys: dict[str, Any]) -> None:
    rope = json_rope(**keys)
    assert (rope.base, rope.scaling, rope.params) == (5e5, "linear", {"factor": 2.0})
    assert not rope.interleaved


def test_json_llama3_scaling_and_partial_rotation() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    rope = json_rope(rope_scaling=scaling, partial_rotary_factor=0.5)
    assert rope.rotary_dim == 8
    assert rope.params == {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_context": 64,
    }


def test_json_token_ids_and_null_window() -> None:
    config = config_from(folder("mistral", eos_token_id=[3, 5, 3], bos_token_id=1))
    assert (config.eos_token_ids, config.bos_token_id) == ((3, 5), 1)
    assert config.sliding_window is None
    assert config_from(folder("mistral", sliding_window=9)).window_of(3) == 9


@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"use_sliding_window": False, "sliding_window": 9}, [None] * 4),
        (
            {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3},
            [None] * 3 + [9],
        ),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 9,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            [9, None] * 2,
        ),
    ],
)
def test_json_qwen2_windows(keys: dict[str, Any], windows: list[int | None]) -> None:
    config = config_from(folder("qwen2", **keys))
    assert [config.window_of(layer) for layer in range(4)] == windows


def json_gemma(**keys: Any) -> ModelConfig:
    return config_from(folder("gemma3_text", sliding_window=16, num_hidden_layers=7, **keys))


def test_json_gemma3_old_spelling() -> None:
    config = json_gemma(
        rope_theta=1e6,
        rope_local_base_freq=2e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=3,
        query_pre_attn_scalar=64,
        final_logit_softcapping=30.0,
    )
    assert config.rope_local is not None
    assert (config.rope.base, config.rope.scaling) == (1e6, "linear")
    assert (config.rope_local.base, config.rope_local.scaling) == (2e4, "none")
    assert config.sliding_layers == (True, True, False) * 2 + (True,)
    assert (config.attention_scale, config.norm_unit_offset) == (0.125, 1.0)
    assert (config.logit_softcap, config.attention_softcap) == (30.0, None)


def test_json_text_part_of_a_multimodal_model() -> None:
    text = dict(folder().metadata, sliding_window=16)
    config = config_from(
        Checkpoint(Path("m"), "safetensors", {"model_type": "gemma3", "text_config": text}, {}, 0)
    )
    assert (config.architecture, config.hidden_size) == ("gemma3", 64)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (gguf(block_count=None), r"model.gguf: 'llama.block_count' is missing"),
        (gguf(block_count=0), "'llama.block_count': got 0, expected a whole number from 1"),
        (gguf(block_count=1 << 40), "whole number from 1 to"),
        (gguf(block_count=5000), "5000 layers, more than 4096"),
        (gguf(block_count="4"), "got '4', expected a whole number"),
        (gguf(attention__head_count=True), "got True"),
        (
            gguf(attention__layer_norm_rms_epsilon=float("nan")),
            "got nan, expected a number",
        ),
        (gguf(attention__head_count=3, embedding_length=66), "3 heads on 2 KV heads"),
        (gguf(rope__dimension_count=18), "18 rotated elements of 16"),
        (gguf(attention__key_length=15), "head size 15"),
        (gguf(rope__freq_base=-1.0), "rope.freq_base': got -1.0"),
        (gguf(rope__freq_base=1.0), "rotary base 1, which must be above 1"),
        (gguf(vocab_size=None), "the vocabulary's size is unknown"),
        (gguf(tokenizer__ggml__bos_token_id="x"), "expected a token id"),
        (gguf(general__name=5), "'general.name': got 5, expected a string"),
        (gemma(attention__sliding_window_pattern=[True]), "a list of 7 flags"),
        (folder(hidden_size="big"), "folder: 'hidden_size': got 'big'"),
        (folder(rope_scaling=[1]), "'rope_scaling': got \\[1\\], expected an object"),
        (
            folder("qwen2", use_sliding_window=True, sliding_window=4, layer_types=["x"] * 4),
            "sliding_attention or full_attention",
        ),
        (
            folder(
                rope_scaling={
                    "type": "llama3",
                    "factor": 2.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                }
            ),
            "less than high_freq_factor",
        ),
    ],
)
def test_bad_values_name_file_and_key(checkpoint: Checkpoint, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        config_from(checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (gguf(attention__value_length=8), "attention.value_length': got 8, expected 16"),
        (gguf(rope__scaling__type="longrope"), "rope.scaling.type': got 'longrope', expected one"),
        (folder(hidden_act="tanh"), "'hidden_act': got 'tanh', expected one of silu"),
        (folder(rope_scaling={"type": "dynamic"}), "got 'dynamic', expected default, linear"),
        (
            gguf("gemma9"),
            "architecture 'gemma9' is not supported; known: .*cohere2, .*nearest is 'gem",
        ),
        (gguf("whisper"), "architecture 'whisper' is not supported; known: [^;]*$"),
    ],
)
def test_unsupported_settings_say_what_is_supported(checkpoint: Checkpoint, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        config_from(checkpoint)


@pytest.mark.parametrize("name", [None, 5, ""])
def test_no_architecture(name: Any) -> None:
    with pytest.raises(FormatError, match=r"'general.architecture': got .*, expected an arch"):
        config_from(Checkpoint(Path("x"), "gguf", {"general.architecture": name}, {}, 0))

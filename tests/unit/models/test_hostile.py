"""Files are untrusted: whatever a key holds, reading it ends in a config or in a ModelError."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.testing import float_tensor
from octavo.errors import ModelError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.records import replace
from octavo.weights import Checkpoint, open_checkpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "families"
FAMILIES = [
    *(GOLDEN / name for name in ("llama", "llama-3.1-rope", "qwen2", "mistral-window", "gemma3")),
    *(GOLDEN / name for name in ("mixtral", "gpt-oss", "deepseek-v3-mla")),
    *(FIXTURES / name for name in ("deepseek-v2", "falcon-grouped")),
]

GGUF = {
    "gemma3.block_count": 4,
    "gemma3.context_length": 1000,
    "gemma3.embedding_length": 64,
    "gemma3.feed_forward_length": 128,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 2,
    "gemma3.attention.key_length": 16,
    "gemma3.attention.value_length": 16,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-5,
    "gemma3.attention.sliding_window": 512,
    "gemma3.attention.sliding_window_pattern": 6,
    "gemma3.rope.freq_base": 1e6,
    "gemma3.rope.freq_base_swa": 1e4,
    "gemma3.rope.dimension_count": 16,
    "gemma3.rope.scaling.type": "yarn",
    "gemma3.rope.scaling.factor": 2.0,
    "gemma3.rope.scaling.original_context_length": 500,
    "gemma3.final_logit_softcapping": 30.0,
    "gemma3.vocab_size": 100,
    "general.name": "hostile",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}

DEEPSEEK = {
    "deepseek2.block_count": 2,
    "deepseek2.context_length": 1000,
    "deepseek2.embedding_length": 64,
    "deepseek2.feed_forward_length": 128,
    "deepseek2.attention.head_count": 4,
    "deepseek2.attention.head_count_kv": 1,
    "deepseek2.attention.key_length": 40,
    "deepseek2.attention.value_length": 32,
    "deepseek2.attention.key_length_mla": 24,
    "deepseek2.attention.value_length_mla": 16,
    "deepseek2.attention.kv_lora_rank": 32,
    "deepseek2.attention.q_lora_rank": 24,
    "deepseek2.attention.layer_norm_rms_epsilon": 1e-5,
    "deepseek2.leading_dense_block_count": 1,
    "deepseek2.expert_count": 8,
    "deepseek2.expert_used_count": 2,
    "deepseek2.expert_shared_count": 1,
    "deepseek2.expert_feed_forward_length": 32,
    "deepseek2.expert_weights_scale": 2.5,
    "deepseek2.expert_weights_norm": True,
    "deepseek2.expert_gating_func": 2,
    "deepseek2.expert_group_count": 4,
    "deepseek2.expert_group_used_count": 2,
    "deepseek2.rope.dimension_count": 8,
    "deepseek2.rope.scaling.type": "yarn",
    "deepseek2.rope.scaling.factor": 4.0,
    "deepseek2.rope.scaling.original_context_length": 250,
    "deepseek2.rope.scaling.yarn_log_multiplier": 0.1,
    "deepseek2.vocab_size": 100,
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-4, 40),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["linear", "llama3", "yarn", "default", "sliding_attention"]),
    st.integers(0, 9).map(np.int64),
    st.floats(width=32).map(np.float32),
)
hostile = st.one_of(
    scalars,
    st.lists(scalars, max_size=4),
    st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "rope_theta"]), scalars),
    st.lists(st.integers(0, 9), max_size=5).map(lambda v: np.array(v, np.int32)),
)


def read(checkpoint: Checkpoint) -> None:
    with suppress(ModelError):
        config = config_from(checkpoint)
        build_graph(config, fit_tensors(config, checkpoint).tensors)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(key=st.sampled_from(sorted(GGUF)), value=hostile)
def test_gguf(key: str, value: Any) -> None:
    metadata = {"general.architecture": "gemma3", **GGUF, key: value}
    read(Checkpoint(Path("hostile.gguf"), "gguf", metadata, {}, 0))


def test_deepseek_as_it_should_be() -> None:
    metadata = {"general.architecture": "deepseek2", **DEEPSEEK}
    config = config_from(Checkpoint(Path("fine.gguf"), "gguf", metadata, {}, 0))
    assert config.latent is not None
    assert config.mixture is not None


@settings(deadline=None, max_examples=300, derandomize=True)
@given(key=st.sampled_from(sorted(DEEPSEEK)), value=hostile)
def test_gguf_deepseek(key: str, value: Any) -> None:
    metadata = {"general.architecture": "deepseek2", **DEEPSEEK, key: value}
    read(Checkpoint(Path("hostile.gguf"), "gguf", metadata, {}, 0))


SHAPES = st.lists(st.sampled_from([0, 1, 2, 8, 16, 24, 32, 40, 96, 128, 160]), max_size=3)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    stem=st.sampled_from(["q", "q_b", "kv_a_mqa", "kv_b", "k_b", "v_b"]),
    kind=st.sampled_from(["weight", "bias"]),
    shape=SHAPES,
)
def test_tensors_of_latents_in_any_shape(stem: str, kind: str, shape: list[int]) -> None:
    metadata = {"general.architecture": "deepseek2", **DEEPSEEK}
    name = f"blk.0.attn_{stem}.{kind}"
    tensors = {name: float_tensor(name, np.zeros(shape, np.float32))}
    read(Checkpoint(Path("hostile.gguf"), "gguf", metadata, tensors, 0))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.name)
@settings(deadline=None, max_examples=150, derandomize=True)
@given(data=st.data())
def test_json(family: Path, data: st.DataObject) -> None:
    checkpoint = open_checkpoint(family)
    keys = sorted({*checkpoint.metadata, "rope_scaling", "text_config", "partial_rotary_factor"})
    key = data.draw(st.sampled_from(keys))
    metadata = {**checkpoint.metadata, key: data.draw(hostile)}
    read(replace(checkpoint, metadata=metadata))

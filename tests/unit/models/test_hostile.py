"""Files are untrusted: whatever a key holds, reading it ends in a config or in a ModelError."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import Checkpoint, open_checkpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"
FAMILIES = ["llama", "llama-3.1-rope", "qwen2", "mistral-window", "gemma3", "mixtral", "gpt-oss"]

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


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=150, derandomize=True)
@given(data=st.data())
def test_json(family: str, data: st.DataObject) -> None:
    checkpoint = open_checkpoint(GOLDEN / family)
    keys = sorted({*checkpoint.metadata, "rope_scaling", "text_config", "partial_rotary_factor"})
    key = data.draw(st.sampled_from(keys))
    metadata = {**checkpoint.metadata, key: data.draw(hostile)}
    read(replace(checkpoint, metadata=metadata))

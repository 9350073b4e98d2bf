"""sentence-transformers' files are untrusted: settings, or an error of this project's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.decoding.pooling import POOLINGS
from octavo.errors import ModelError
from octavo.models import embedding_settings
from octavo.weights import Checkpoint

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(["a.Transformer", "a.Pooling", "a.Normalize", "Dense", ""])


def object_of(*keys: str, values: Any = JUNK) -> Any:
    return st.dictionaries(st.sampled_from(keys), values, max_size=len(keys))


@settings(max_examples=200, deadline=None)
@given(
    pooling=object_of("pooling_mode_mean_tokens", "pooling_mode_cls_token", "pooling_mode_x"),
    prompts=object_of("prompts", "default_prompt_name"),
    length=object_of("max_seq_length"),
    modules=JUNK | st.lists(object_of("type", values=KINDS | JUNK), max_size=4),
)
def test_settings_or_an_error(pooling: Any, prompts: Any, length: Any, modules: Any) -> None:
    extras = {
        "pooling": pooling,
        "sentence_transformers": prompts,
        "sentence_bert": length,
        "modules": {"modules": modules},
    }
    checkpoint = Checkpoint(Path("m"), "safetensors", {}, {}, 0, extras=extras)
    try:
        found = embedding_settings(checkpoint, is_encoder=True)
    except ModelError:
        return
    assert found.pooling in POOLINGS
    assert found.max_length is None or found.max_length > 0
    assert found.default_prompt is None or found.default_prompt in found.prompts

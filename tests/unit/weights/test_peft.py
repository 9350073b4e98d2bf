"""Adapter folders: what is read, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import FormatError, ModelError, UnsupportedError
from octavo.models import build_graph, config_from
from octavo.models.adapters import read_adapter
from octavo.weights import open_checkpoint
from octavo.weights.adapter import Adapter
from octavo.weights.peft import open_adapter
from tests.support.lora import PREFIX, write_adapter

BASE = Path(__file__).parents[2] / "fixtures" / "families" / "llama-yarn"
Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
MODULES = {Q: (32, 32), DOWN: (32, 64)}
A, B = f"{PREFIX}{Q}.lora_A.weight", f"{PREFIX}{Q}.lora_B.weight"


def _floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def _read(folder: Path) -> Adapter:
    checkpoint = open_checkpoint(BASE)
    config = config_from(checkpoint)
    return read_adapter(folder, config, checkpoint, build_graph(config, checkpoint.tensors))


def test_names_scales_and_sizes(tmp_path: Path) -> None:
    adapter = _read(write_adapter(tmp_path, MODULES))
    assert sorted(adapter.changes) == ["blk.0.attn_q.weight", "blk.1.ffn_down.weight"]
    change = adapter.changes["blk.1.ffn_down.weight"]
    assert (change.rank, change.scale, adapter.max_rank) == (4, 2.0, 4)
    assert adapter.num_bytes == 4 * (16 * 32 + 32 * 4 + 16 * 64 + 32 * 4)
    settings = {
        "use_rslora": True,
        "rank_pattern": {"q_proj": 4},
        "alpha_pattern": {"mlp.down_proj": 6},
    }
    adapter = _read(write_adapter(tmp_path / "b", MODULES, config=settings))
    assert adapter.changes["blk.0.attn_q.weight"].scale == 4.0
    assert adapter.changes["blk.1.ffn_down.weight"].scale == 3.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "'peft_type': got 'IA3', expected LORA"),
        ({"bias": "all"}, "'bias': got 'all', expected none"),
        ({"use_dora": 1}, "'use_dora': got 1"),
        ({"use_dora": True}, "has no magnitude_vector beside it"),
        ({"modules_to_save": "lm_head"}, "'modules_to_save': got 'lm_head'"),
        ({"lora_bias": True}, "'lora_bias': got True"),
        ({"layer_replication": [[0, 1]]}, "'layer_replication'"),
        ({"target_parameters": ["experts"]}, "'target_parameters'"),
        ({"something_new": 3}, "'something_new': got 3"),
        ({"r": 0}, "'r': got 0, expected a number above 0"),
        ({"r": 2.5}, "'r': got 2.5, expected a whole number"),
        ({"r": "4"}, "'r': got '4'"),
        ({"lora_alpha": None}, "'lora_alpha': got None"),
        ({"use_rslora": 1}, "'use_rslora': got 1, expected true or false"),
        ({"rank_pattern": [1]}, "'rank_pattern': got [1], expected an object"),
        ({"rank_pattern": {"(a+)+$": 1}}, "'rank_pattern'"),
        ({"rank_pattern": {"q_proj": 3}}, f"'{A}' is [4, 32], expected [3, in]"),
    ],
)
def test_a_config_that_asks_for_more(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_adapter(write_adapter(tmp_path, MODULES, config=config))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({A: None}, FormatError, f"'{B}' has no lora_A beside it"),
        ({B: None}, FormatError, f"'{A}' has no lora_B beside it"),
        ({A: _floats(4)}, FormatError, f"'{A}' is [4], expected [4, in]"),
        ({A: np.zeros((4, 32), np.int32)}, UnsupportedError, f"'{A}' has dtype I32"),
        ({f"{PREFIX}{Q}.lora_magnitude_vector": _floats(32)}, FormatError, "is of DoRA"),
        ({f"{PREFIX}lm_head.weight": _floats(9)}, UnsupportedError, "lm_head.weight' is not a low"),
        ({f"{PREFIX}model.embed_tokens.lora_embedding_A": _floats(9)}, UnsupportedError, "embedd"),
        ({A: _floats(4, 48)}, FormatError, "'blk.0.attn_q.weight' of the model is [32, 32]"),
        ({B: _floats(48, 4)}, FormatError, f"'{B}' is [48, 4], but 'blk.0.attn_q.weight'"),
    ],
)
def test_tensors_that_do_not_fit(
    tmp_path: Path, tensors: dict[str, Any], error: type[ModelError], message: str
) -> None:
    with pytest.raises(error) as caught:
        _read(write_adapter(tmp_path, MODULES, tensors=tensors))
    assert message in str(caught.value)
    assert "adapter_model.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        "model.layers.2.self_attn.q_proj",
        "model.layers.0.self_attn.qkv_proj",
        "model.embed_tokens",
        "model.layers.0.input_layernorm",
        "transformer.h.0.attn.c_attn",
    ],
)
def test_a_module_of_another_base(tmp_path: Path, module: str) -> None:
    with pytest.raises(FormatError, match=r"lora_A\.weight' changes module .* another base"):
        _read(write_adapter(tmp_path, {module: (32, 32)}))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_that_is_not_an_adapter(tmp_path: Path, name: str) -> None:
    folder = write_adapter(tmp_path, MODULES)
    (folder / name).unlink()
    with pytest.raises(FormatError, match=f"{name}: no such file"):
        open_adapter(folder)
    with pytest.raises(FormatError, match="has no tensors"):
        open_adapter(write_adapter(tmp_path, {}))


def test_any_damage_is_an_error(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, MODULES)
    clean = (folder / "adapter_config.json").read_bytes()
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    values = values | st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=5), values)
    keys = st.sampled_from(
        ["r", "lora_alpha", "bias", "use_rslora", "alpha_pattern", "rank_pattern"]
    )

    @settings(max_examples=40, deadline=None)
    @given(st.dictionaries(keys | st.text(max_size=4), values, max_size=3))
    def check(changes: dict[str, Any]) -> None:
        config = json.loads(clean) | changes
        (folder / "adapter_config.json").write_text(json.dumps(config))
        try:
            changed = open_adapter(folder).changes
        except ModelError:
            return
        assert all(np.isfinite(change.scale) and change.scale > 0 for change in changed)

    check()

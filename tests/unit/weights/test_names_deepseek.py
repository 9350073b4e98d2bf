"""DeepSeek's names: either way to queries, a bias by a name of its own, layers behind the last."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import FormatError
from octavo.weights.names import map_names

CONFIG: dict[str, Any] = {"model_type": "deepseek_v3", "num_hidden_layers": 1}
LAYER = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.kv_a_proj_with_mqa",
    "self_attn.kv_a_layernorm",
    "self_attn.kv_b_proj",
    "self_attn.o_proj",
    "mlp.gate",
)
STORED = [f"model.layers.0.{name}.weight" for name in LAYER]
STORED += ["model.embed_tokens.weight", "model.norm.weight"]


def test_the_bias_of_the_choice() -> None:
    name = "model.layers.0.mlp.gate.e_score_correction_bias"
    assert map_names([*STORED, name], CONFIG)[name] == "blk.0.exp_probs_b.bias"


@pytest.mark.parametrize("count", [None, 0, -1, "1", 1000])
def test_layers_behind_the_last_are_unexpected(count: object) -> None:
    extra = "model.layers.1.eh_proj.weight"
    with pytest.raises(FormatError, match="1 unexpected"):
        map_names([*STORED, extra], {**CONFIG, "num_nextn_predict_layers": count})


def test_layers_that_predict_further_tokens_are_left_out() -> None:
    config = {**CONFIG, "num_nextn_predict_layers": 1}
    extra = ["model.layers.1.eh_proj.weight", "model.layers.1.shared_head.head.weight"]
    assert map_names([*STORED, *extra], config) == map_names(STORED, config)
    with pytest.raises(FormatError, match="1 unexpected"):
        map_names([*STORED, "model.layers.2.eh_proj.weight"], config)

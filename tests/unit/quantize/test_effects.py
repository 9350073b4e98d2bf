"""How much an error of a product can change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.quantize.effects import Effects
from octavo.quantize.forward import Forward
from octavo.quantize.source import SourceModel

HERE = Path(__file__).parents[2]
WINDOWS = np.random.default_rng(0).integers(3, 96, (2, 12)).tolist()


def effects_of(source: SourceModel) -> dict[str, float]:
    graph = source.graph()
    effects = Effects(graph)
    forward = Forward(graph, WINDOWS, source.expand, source.lookup)
    forward.run(lambda node, weight, x: source.expand(weight.name), effects.watch)
    return effects.of


@pytest.mark.parametrize(
    "folder", ["golden/tiny/llama", "golden/tiny/gemma3", "fixtures/families/gpt-neox"]
)
def test_every_matrix_of_a_layer_has_an_effect(folder: str):
    found = effects_of(SourceModel(HERE / folder))
    blocks = [name for name in found if name.startswith("blk.")]
    assert {"blk.0.attn_q.weight", "blk.1.ffn_down.weight"} <= set(blocks)
    assert all(0 < found[name] <= 1 for name in blocks)
    assert found["blk.0.attn_q.weight"] == found["blk.0.attn_output.weight"]


def test_a_block_that_adds_less_matters_less():
    source = SourceModel(HERE / "golden/tiny/llama")
    before = effects_of(source)
    size = source.fitted.tensors["blk.1.ffn_down.weight"].shape[0]
    source.rows["blk.1.ffn_down.weight"] = np.full(size, 0.1, np.float32)
    after = effects_of(source)
    assert after["blk.1.ffn_up.weight"] < 0.1 * before["blk.1.ffn_up.weight"]
    assert after["blk.0.ffn_up.weight"] == before["blk.0.ffn_up.weight"]

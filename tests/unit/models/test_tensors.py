"""Tensors that do not fit the configuration: everything wrong is told in one message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends.testing import float_tensor
from octavo.errors import FormatError, UnsupportedError
from octavo.graph import Op
from octavo.models import ModelConfig, build_graph, config_from
from octavo.records import replace
from octavo.weights import Tensor, open_checkpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"


def parts(family: str) -> tuple[ModelConfig, dict[str, Tensor]]:
    checkpoint = open_checkpoint(GOLDEN / family)
    return config_from(checkpoint), dict(checkpoint.tensors)


def zeros(name: str, *shape: int) -> Tensor:
    return float_tensor(name, np.zeros(shape, np.float32))


def test_one_message_lists_everything() -> None:
    config, tensors = parts("llama")
    for layer in range(3):
        del tensors[f"blk.{layer}.ffn_up.weight"]
    del tensors["blk.1.attn_norm.weight"]
    tensors["blk.2.attn_v.weight"] = zeros("blk.2.attn_v.weight", 31, 64)
    tensors["blk.0.attn_gate.weight"] = zeros("blk.0.attn_gate.weight", 4)
    tensors["extra"] = zeros("extra", 4)
    with pytest.raises(FormatError) as error:
        build_graph(config, tensors)
    message = str(error.value)
    assert "missing: blk.{0-2}.ffn_up.weight, blk.1.attn_norm.weight;" in message
    assert "of a wrong shape: blk.2.attn_v.weight [31, 64] (expected [32, 64]);" in message
    assert "unexpected: blk.0.attn_gate.weight [4], extra [4]." in message


def test_qwen2_must_have_its_biases() -> None:
    config, tensors = parts("qwen2")
    del tensors["blk.1.attn_q.bias"]
    with pytest.raises(FormatError, match=r"missing: blk\.1\.attn_q\.bias\."):
        build_graph(config, tensors)


def test_llama_takes_biases_where_there_are_some() -> None:
    config, tensors = parts("llama")
    tensors["blk.0.attn_q.bias"] = zeros("blk.0.attn_q.bias", 64)
    graph = build_graph(config, tensors)
    biased = [n for n in graph.nodes if n.op is Op.LINEAR and n.inputs[2] is not None]
    assert [n.inputs[2].name for n in biased if n.inputs[2]] == ["blk.0.attn_q.bias"]


def test_head_is_the_embedding_table_where_there_is_no_other() -> None:
    untied, tied = (build_graph(*parts(family)) for family in ("llama", "llama-3.1-rope"))
    heads = [graph.nodes[-1].inputs[1] for graph in (untied, tied)]
    assert [head.name for head in heads if head] == ["output.weight", "token_embd.weight"]
    assert tied.nodes[0].inputs[1] is heads[1]


def test_head_runs_on_the_chosen_rows_only() -> None:
    graph = build_graph(*parts("gemma3"))
    assert graph.output.shape == ("R", 320)
    assert [node.op for node in graph.nodes[-3:]] == [Op.SELECT_ROWS, Op.RMS_NORM, Op.LINEAR]


def test_frequency_divisors_of_a_wrong_size_are_told() -> None:
    config, tensors = parts("llama")
    tensors["rope_freqs.weight"] = zeros("rope_freqs.weight", 5)
    with pytest.raises(FormatError, match=r"rope_freqs.weight \[5\] \(expected \[8\]\)"):
        build_graph(config, tensors)


def test_frequency_divisors_must_divide() -> None:
    config, tensors = parts("llama")
    tensors["rope_freqs.weight"] = zeros("rope_freqs.weight", 8)
    with pytest.raises(FormatError, match=r"'rope_freqs.weight': got 0.0 to 0.0, expected all"):
        build_graph(config, tensors)


def test_config_of_an_unknown_family() -> None:
    config, tensors = parts("llama")
    with pytest.raises(UnsupportedError, match="architecture 'gpt5' is not supported"):
        build_graph(replace(config, architecture="gpt5"), tensors)

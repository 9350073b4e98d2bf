"""Experts that a file keeps apart, and configurations that do not fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import FormatError
from octavo.models import config_from, fit_tensors
from octavo.records import replace
from octavo.weights import Checkpoint, dequantize, open_checkpoint
from octavo.weights.tensor import Tensor, float32_tensor

MIXTRAL = Path(__file__).parents[2] / "golden" / "tiny" / "mixtral"


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_checkpoint(MIXTRAL)


def test_experts_are_stacked_without_copies(checkpoint: Checkpoint) -> None:
    fitted = fit_tensors(config_from(checkpoint), checkpoint).tensors
    whole = fitted["blk.1.ffn_up_exps.weight"]
    assert whole.shape == (4, 128, 64)
    for e, part in enumerate(whole.slices()):
        stored = checkpoint.tensors[f"blk.1.ffn_up.{e}.weight"]
        assert part.data is stored.data
        np.testing.assert_array_equal(dequantize(whole)[e], dequantize(stored))
    assert not any(".ffn_up.0." in name for name in fitted)


def test_one_tensor_is_taken_apart_by_views() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    tensor = float32_tensor("stack", array)
    for part, wanted in zip(tensor.slices(), array, strict=True):
        np.testing.assert_array_equal(dequantize(part), wanted)
        assert np.shares_memory(part.data, tensor.data)


def other(tensors: dict[str, Tensor]) -> None:
    name = "blk.2.ffn_down.3.weight"
    tensors[name] = float32_tensor(name, np.zeros((64, 96), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("blk.1.ffn_gate.2.weight"), r"3 of 4 experts .*blk\.1\.ffn_gate\.2"),
        (other, r"blk\.2\.ffn_down\.3\.weight': got F32 \[64, 96\], expected F32 \[64, 128\]"),
    ],
    ids=["missing", "another shape"],
)
def test_experts_that_do_not_stack(checkpoint: Checkpoint, change: Any, message: str) -> None:
    tensors = dict(checkpoint.tensors)
    change(tensors)
    with pytest.raises(FormatError, match=message):
        fit_tensors(config_from(checkpoint), replace(checkpoint, tensors=tensors))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_experts_per_tok": 5}, "5 experts a token of 4"),
        ({"num_local_experts": 5000}, "5000 experts, more than"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok"),
        ({"num_local_experts": "many"}, "num_local_experts"),
    ],
)
def test_bad_numbers_are_named(checkpoint: Checkpoint, keys: dict[str, Any], message: str) -> None:
    changed = replace(checkpoint, metadata={**checkpoint.metadata, **keys})
    with pytest.raises(FormatError, match=message):
        config_from(changed)


GPT_OSS = MIXTRAL.parent / "gpt-oss"


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("ffn_gate_up_exps.weight", (4, 256, 64), r"\[4, 64, 256\]"),
        ("ffn_gate_up_exps.weight", (4, 64), r"\[4, 64, 256\]"),
        ("ffn_gate_up_exps.bias", (4, 255), r"\[4, 256\]"),
    ],
)
def test_joined_experts_of_a_wrong_shape(name: str, shape: tuple[int, ...], expected: str) -> None:
    checkpoint = open_checkpoint(GPT_OSS)
    full = f"blk.1.{name}"
    tensors = {**checkpoint.tensors, full: float32_tensor(full, np.zeros(shape, np.float32))}
    with pytest.raises(FormatError, match=f"{full}.*expected {expected}"):
        fit_tensors(config_from(checkpoint), replace(checkpoint, tensors=tensors))

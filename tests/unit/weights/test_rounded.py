"""Float matrices as int8: how far off, and which are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.backends.testing import float_tensor, random_tensor
from octavo.weights import dequantize
from octavo.weights.rounded import as_int8
from octavo.weights.tensor import Tensor


def rounded(tensor: Tensor) -> np.ndarray:
    made = as_int8({"blk.0.ffn_up.weight": tensor})["blk.0.ffn_up.weight"]
    assert made.scheme.name == "Q8_0"
    stored = Tensor(made.name, made.shape, made.scheme, made.data)
    return dequantize(stored).reshape(made.shape)


@pytest.mark.parametrize("scheme", ["F32", "F16", "BF16"])
def test_error_is_half_a_step(scheme: str) -> None:
    tensor = random_tensor("w", scheme, (24, 96), 3)
    exact = dequantize(tensor).reshape(24, 3, 32)
    step = np.abs(exact).max(axis=2, keepdims=True) / 127
    error = np.abs(rounded(tensor).reshape(exact.shape) - exact)
    assert (error <= step * 0.57 + 1e-12).all()  # half, and what the scale's own rounding adds


def test_zeros_and_extremes() -> None:
    rows = np.zeros((4, 64), np.float32)
    rows[1, 5], rows[2, :] = -3.0, 1e-12
    rows[3, 33] = 2.0
    got = rounded(float_tensor("w", rows))
    np.testing.assert_allclose(got[[0, 1, 3]], rows[[0, 1, 3]], rtol=1e-3)
    assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_norm.weight", (64,)),
        ("blk.0.ffn_up.weight", (8, 40)),
        ("blk.0.ffn_gate_inp.weight", (8, 64)),
        ("cls.output.weight", (1, 64)),
    ],
)
def test_what_is_left_alone(name: str, shape: tuple[int, ...]) -> None:
    tensor = float_tensor(name, np.ones(shape, np.float32))
    assert as_int8({name: tensor})[name] is tensor


def test_quantized_tensors_are_left_alone() -> None:
    tensor = random_tensor("w", "Q4_K", (8, 256), 0)
    assert as_int8({"w": tensor})["w"] is tensor

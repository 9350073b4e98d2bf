"""GPTQ: its factor, what it makes of errors, and how it guards against chance."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.quantize.gptq import DAMPINGS, best_damping, gptq, upper_factor, upper_inverse
from octavo.quantize.inputs import apart, mean_square
from octavo.quantize.recipe import RECIPES
from octavo.quantize.rounding import expanded, rounded
from octavo.weights import SCHEMES

Q4_0 = SCHEMES["Q4_0"]


def inputs(tokens: int, columns: int, rank: int, seed: int = 0) -> np.ndarray:
    """Inputs that depend on each other."""
    draw = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(rank, columns))
    x = draw.normal(size=(tokens, rank)) @ mixing + 0.1 * draw.normal(size=(tokens, columns))
    return x.astype(np.float32)


def loss(blocks: np.ndarray, weight: np.ndarray, x: np.ndarray) -> float:
    off = expanded(blocks, weight.shape, Q4_0) - weight
    return float(np.square(x @ off.T).sum())


@pytest.mark.parametrize("size", [1, 63, 64, 129, 512, 700])
def test_factor_is_upper_and_its_product_is_the_damped_matrix(size: int):
    x = inputs(size + 5, size, min(size, 20))
    moments = x.T @ x
    factor = upper_factor(moments, 0.1)
    np.testing.assert_array_equal(factor, np.triu(factor))
    damped = moments + 0.1 * np.trace(moments) / size * np.eye(size)
    np.testing.assert_allclose(factor @ factor.T, damped, atol=1e-4 * damped.max())


def test_factor_of_nothing_is_one():
    np.testing.assert_allclose(upper_factor(np.zeros((40, 40), np.float32), 0.1), np.eye(40))


def test_inverse():
    upper = np.triu(np.random.default_rng(0).normal(size=(150, 150))) + 9 * np.eye(150)
    np.testing.assert_allclose(upper_inverse(upper) @ upper, np.eye(150), atol=1e-9)


@pytest.mark.parametrize("scheme", ["Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_independent_inputs_are_rounded_by_their_importance(scheme: str):
    weight = np.random.default_rng(0).normal(size=(7, 512)).astype(np.float32)
    power = np.random.default_rng(1).random(512).astype(np.float32) + 0.1
    factor = upper_factor(np.diag(power), 0.0)
    expected = rounded(weight, SCHEMES[scheme], power / power.mean(), 1)
    np.testing.assert_array_equal(gptq(weight, factor, SCHEMES[scheme], 2), expected)


def test_errors_are_made_good_by_later_columns():
    weight = np.random.default_rng(0).normal(size=(16, 320)).astype(np.float32)
    x = inputs(2000, 320, 40)
    factor = upper_factor(x.T @ x, 0.01)
    nearest = loss(rounded(weight, Q4_0, mean_square(x), 1), weight, x)
    assert loss(gptq(weight, factor, Q4_0, 1), weight, x) < 0.2 * nearest


def test_codes_are_those_of_the_method_written_out():
    """Frantar et al.'s own form, by the inverse's Cholesky factor, a column at a time."""
    weight = np.random.default_rng(0).normal(size=(4, 96)).astype(np.float32)
    x = inputs(300, 96, 20)
    blocks = gptq(weight, upper_factor(x.T @ x, 0.05), Q4_0, 1)
    scales = blocks.reshape(4, 3, 18)[:, :, :2].copy().view(np.float16)[:, :, 0]
    found = expanded(blocks, weight.shape, Q4_0)
    moments = (x.T @ x).astype(np.float64)
    moments += 0.05 * np.trace(moments) / 96 * np.eye(96)
    inverse = np.linalg.cholesky(np.linalg.inv(moments)).T
    left = weight.astype(np.float64)
    for k in range(96):
        scale = scales[:, k // 32].astype(np.float64)
        codes = np.clip(np.rint(left[:, k] / scale), -8, 7)
        np.testing.assert_allclose(found[:, k], codes * scale, atol=1e-6)
        left[:, k:] -= np.outer((left[:, k] - found[:, k]) / inverse[k, k], inverse[k, k:])


def test_damping_grows_where_tokens_are_few():
    weight = np.random.default_rng(0).normal(size=(32, 256)).astype(np.float32)
    few = best_damping(inputs(80, 256, 256), 8, [weight], Q4_0, 1)
    many = best_damping(inputs(3000, 256, 30), 16, [weight], Q4_0, 1)
    assert few > many
    assert many == min(DAMPINGS)


def test_many_columns_are_tried_in_part(monkeypatch: pytest.MonkeyPatch):
    sizes = []

    def factor(moments: np.ndarray, damping: float) -> np.ndarray:
        sizes.append(len(moments))
        return upper_factor(moments, damping)

    monkeypatch.setattr("octavo.quantize.gptq.COLUMNS", 128)
    monkeypatch.setattr("octavo.quantize.gptq.upper_factor", factor)
    weight = np.random.default_rng(0).normal(size=(8, 512)).astype(np.float32)
    assert best_damping(inputs(64, 512, 8), 16, [weight, weight], Q4_0, 1) in DAMPINGS
    assert set(sizes) == {128}


def test_every_fourth_window_judges():
    x = np.arange(20, dtype=np.float32)[:, None]
    learn, judge = apart(x, 2)
    np.testing.assert_array_equal(judge[:, 0], [6, 7, 14, 15])
    assert len(learn) + len(judge) == 20
    assert all(part is x for part in apart(x, 8))


def test_an_embedding_beside_a_head_gets_four_bits():
    recipe = RECIPES["q4_0"]
    assert recipe.wanted("token_embd.weight", apart=True) == "Q4_K"
    assert recipe.wanted("output.weight", apart=True) == "Q6_K"
    assert recipe.wanted("token_embd.weight", apart=False) == "Q6_K"
    assert recipe.wanted("blk.0.attn_q.weight", apart=True) == "Q4_0"

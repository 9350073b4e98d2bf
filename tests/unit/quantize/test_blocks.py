"""Writing blocks: the layouts are GGUF's, and the scales are at least as good as the usual ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import FormatError
from octavo.quantize.gptq import gptq, upper_factor
from octavo.quantize.inputs import tempered
from octavo.quantize.rounding import WRITTEN, expanded, rounded
from octavo.weights import SCHEMES

gguf = pytest.importorskip("gguf")
LAYOUTS = (*WRITTEN, "Q2_K", "Q3_K", "TQ2_0", "MXFP4")
BITS = {"TQ2_0": 1.2, "MXFP4": 3.2}


def weights(rows: int = 8, columns: int = 512, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = np.exp(0.5 * rng.standard_normal((1, columns)))
    return (rng.standard_normal((rows, columns)) * spread).astype(np.float32)


def read_by_gguf(blocks: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = gguf.GGMLQuantizationType(SCHEMES[name].ggml_type)
    return gguf.quants.dequantize(blocks.reshape(-1), kind).reshape(shape)


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


@pytest.mark.parametrize("name", LAYOUTS)
def test_others_read_what_is_written(name: str):
    x = weights()
    read = read_by_gguf(rounded(x, SCHEMES[name], None, 1), name, x.shape)
    bits = BITS[name] if name in BITS else int(name[1])
    assert rms(read - x) < 2 * rms(x) * 2.0**-bits
    kind = gguf.GGMLQuantizationType(SCHEMES[name].ggml_type)
    try:
        usual = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    except NotImplementedError:  # K-quants are only read there
        return
    assert rms(read - x) <= 1.001 * rms(usual - x)


@pytest.mark.parametrize("name", WRITTEN)
def test_octavo_reads_it_the_same(name: str):
    x = weights()
    blocks = rounded(x, SCHEMES[name], None, 2)
    np.testing.assert_array_equal(
        expanded(blocks, x.shape, SCHEMES[name]), read_by_gguf(blocks, name, x.shape)
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_numbers_of_every_kind(name: str):
    x = np.zeros((8, 256), np.float32)
    x[1], x[2], x[3, 7] = 1.0, -3.0, 1e4
    x[4] = np.linspace(-1, 1, 256)
    x[5] = 1e-9
    x[6, ::2] = 2.0
    x[7] = np.linspace(5, 6, 256)
    read = read_by_gguf(rounded(x, SCHEMES[name], None, 1), name, x.shape)
    assert np.isfinite(read).all()
    assert not read[0].any()
    np.testing.assert_allclose(read[1], 1.0, rtol=0.1)
    np.testing.assert_allclose(read[2], -3.0, rtol=0.1)


@given(st.integers(0, 1000), st.sampled_from(WRITTEN))
def test_threads_change_no_bit(seed: int, name: str):
    x = weights(5, 256, seed)
    one = rounded(x, SCHEMES[name], None, 1)
    np.testing.assert_array_equal(rounded(x, SCHEMES[name], None, 3), one)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_importance_moves_the_error_away(name: str):
    x = weights(16)
    importance = np.where(np.arange(512) % 4 == 0, 100.0, 1.0).astype(np.float32)
    plain, aware = (
        np.square(expanded(rounded(x, SCHEMES[name], w, 1), x.shape, SCHEMES[name]) - x)
        for w in (np.ones(512, np.float32), importance)
    )
    assert aware[:, ::4].mean() < 0.8 * plain[:, ::4].mean()
    assert (aware * importance).sum() < (plain * importance).sum()


def test_numbers_that_are_not_finite():
    x = weights()
    x[1, 2] = np.nan
    with pytest.raises(FormatError, match="not finite"):
        rounded(x, SCHEMES["Q4_0"], None, 1)


def correlated(columns: int, tokens: int = 1024, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((columns // 4, columns))
    noise = 0.3 * rng.standard_normal((tokens, columns))
    return (rng.standard_normal((tokens, columns // 4)) @ mix + noise).astype(np.float32)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q4_K", "Q6_K", "MXFP4"])
def test_gptq_makes_smaller_errors_of_products(name: str):
    w, x, scheme = weights(24), correlated(512), SCHEMES[name]
    held_out = x[::4]

    def error(blocks: np.ndarray) -> float:
        return rms(held_out @ (read_by_gguf(blocks, name, w.shape) - w).T)

    nearest = error(rounded(w, scheme, None, 1))
    assert error(gptq(w, upper_factor(x.T @ x, 0.01), scheme, 2)) < 0.75 * nearest


def test_one_huge_token_does_not_hide_the_others():
    x = correlated(64, 128)
    loud = x.copy()
    loud[0] *= 1000
    np.testing.assert_array_equal(tempered(loud)[1:], x[1:])
    size = np.linalg.norm(x, axis=1)
    assert np.linalg.norm(tempered(loud)[0]) <= 2.01 * np.median(size)
    assert tempered(np.zeros((3, 4), np.float32)).any() == np.False_

"""Rotary frequencies and their scalings, by properties that do not repeat the code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.errors import UnsupportedError
from octavo.models import RopeConfig
from octavo.models.rope import inverse_frequencies, magnitude

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 8192}
YARN = {"factor": 4.0, "original_context": 32768}


def frequencies(scaling: str = "none", **params: float) -> np.ndarray:
    return inverse_frequencies(RopeConfig(500000.0, 128, scaling=scaling, params=params))


def test_plain() -> None:
    plain = frequencies()
    assert plain.dtype == np.float32
    assert plain.shape == (64,)
    assert plain[0] == 1.0
    assert plain[32] == pytest.approx(500000.0**-0.5)


def test_linear_and_given_divisors() -> None:
    np.testing.assert_allclose(frequencies("linear", factor=4.0), frequencies() / 4)
    divisors = np.linspace(1, 8, 64).astype(np.float32)
    got = inverse_frequencies(RopeConfig(500000.0, 128), divisors)
    np.testing.assert_allclose(got, frequencies() / divisors, rtol=1e-6)


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    plain, scaled = frequencies(), frequencies("llama3", **LLAMA3)
    wavelength = 2 * math.pi / plain
    ratio = plain / scaled
    np.testing.assert_allclose(ratio[wavelength < 8192 / 4], 1.0, rtol=1e-6)
    np.testing.assert_allclose(ratio[wavelength > 8192], 8.0, rtol=1e-6)
    between = ratio[(wavelength > 8192 / 4) & (wavelength < 8192)]
    assert len(between) > 0
    assert (np.diff(between) > 0).all()
    assert ((between > 1) & (between < 8)).all()


def test_yarn_blends_by_turns_and_raises_the_magnitude() -> None:
    rope = RopeConfig(1e6, 128, scaling="yarn", params=YARN)
    ratio = inverse_frequencies(RopeConfig(1e6, 128)) / inverse_frequencies(rope)
    turns = 32768 * inverse_frequencies(RopeConfig(1e6, 128)) / (2 * math.pi)
    np.testing.assert_allclose(ratio[turns > 35], 1.0, rtol=1e-6)
    np.testing.assert_allclose(ratio[turns < 0.9], 4.0, rtol=1e-6)
    assert (np.diff(ratio) > -1e-6).all()
    assert magnitude(rope) == pytest.approx(0.1 * math.log(4) + 1)
    given = RopeConfig(1e6, 128, scaling="yarn", params={**YARN, "attention_factor": 1.5})
    assert magnitude(given) == 1.5
    assert magnitude(RopeConfig(1e6, 128)) == 1.0


def test_unknown_scaling() -> None:
    with pytest.raises(UnsupportedError, match="got 'longrope', expected one of linear, llama3"):
        frequencies("longrope")

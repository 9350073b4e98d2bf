"""Pooling does not depend on the pieces in which states come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding.pooling import POOLINGS, Pool, Pooling, PoolingKind
from octavo.errors import InvalidParameterError

STATES = np.random.default_rng(7).normal(size=(700, 48)).astype(np.float32) * 3


def pooled(states: Any, kind: PoolingKind, cuts: tuple[int, ...] = (), **options: Any) -> Any:
    pool = Pool(Pooling(kind, **options), kind)
    for piece in np.split(states, cuts):
        if len(piece):
            pool.add(piece)
    return pool.result()


@pytest.mark.parametrize("kind", POOLINGS)
def test_kinds(kind: PoolingKind) -> None:
    states = STATES[:9]
    expected = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[kind]
    np.testing.assert_allclose(pooled(states, kind, normalize=False), expected, rtol=1e-6)
    unit = pooled(states, kind)
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected), rtol=1e-5)


@given(
    kind=st.sampled_from(POOLINGS),
    count=st.integers(1, 700),
    cuts=st.lists(st.integers(0, 700), max_size=6),
)
def test_bit_equal_in_any_pieces(kind: PoolingKind, count: int, cuts: list[int]) -> None:
    states = STATES[:count]
    whole = pooled(states, kind)
    places = tuple(sorted(min(cut, count) for cut in cuts))
    assert pooled(states, kind, places).tobytes() == whole.tobytes()


def test_dimensions_are_cut_before_normalizing() -> None:
    cut = pooled(STATES[:5], "mean", dimensions=8)
    assert cut.shape == (8,)
    assert np.linalg.norm(cut) == pytest.approx(1, abs=1e-6)


def test_zeros_stay_zeros() -> None:
    assert not pooled(np.zeros((3, 4), np.float32), "mean").any()


def test_bad_values_are_named() -> None:
    with pytest.raises(InvalidParameterError, match="pooling"):
        Pooling("max")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="dimensions"):
        Pooling(dimensions=0)
    with pytest.raises(InvalidParameterError, match="dimensions"):
        Pooling(dimensions=9).check_width(8)

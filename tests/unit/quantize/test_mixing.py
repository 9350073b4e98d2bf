"""Formats within a budget."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidParameterError
from octavo.quantize.mixing import Choice, choose, hull, ladder, measure

ERRORS = st.lists(st.floats(0.001, 10), min_size=3, max_size=3)


def tensors(errors: list[list[float]]) -> dict[str, list[Choice]]:
    return {
        f"t{i}": [Choice(f"s{j}", 10 * (j + 1), e) for j, e in enumerate(sorted(row, reverse=True))]
        for i, row in enumerate(errors)
    }


@given(st.lists(ERRORS, min_size=1, max_size=4), st.integers(40, 130))
def test_close_to_the_best_there_is(errors: list[list[float]], budget: int):
    choices = tensors(errors)
    chosen = choose(choices, budget) if budget >= 10 * len(errors) else {}
    size, error = _cost(choices, chosen)
    assert size <= budget
    best = min(
        (e for s, e in (_cost(choices, c) for c in _all(choices)) if s <= budget),
        default=0.0,
    )
    # A greedy walk on the hull misses at most one step of one tensor.
    largest = max(steps[0].error - steps[-1].error for steps in choices.values())
    assert error <= best + largest + 1e-9


def _all(choices: dict[str, list[Choice]]):
    for picked in product(*choices.values()):
        yield dict(zip(choices, (c.scheme for c in picked), strict=True))


def _cost(choices: dict[str, list[Choice]], chosen: dict[str, str]) -> tuple[int, float]:
    picked = [c for name, c in _pairs(choices) if chosen.get(name) == c.scheme]
    return sum(c.size_bytes for c in picked), sum(c.error for c in picked)


def _pairs(choices: dict[str, list[Choice]]):
    return [(name, c) for name, steps in choices.items() for c in steps]


def test_sensitive_tensors_get_the_bits():
    choices = tensors([[1.0, 0.1, 0.01], [8.0, 0.8, 0.08], [0.1, 0.05, 0.04]])
    assert choose(choices, 50) == {"t0": "s1", "t1": "s1", "t2": "s0"}
    assert choose(choices, 60) == {"t0": "s1", "t1": "s2", "t2": "s0"}


def test_a_budget_that_is_too_small():
    with pytest.raises(InvalidParameterError, match="target_bits"):
        choose(tensors([[1.0, 0.5, 0.1]]), 9)


def test_a_format_that_is_larger_and_worse_is_never_taken():
    steps = [Choice("a", 10, 1.0), Choice("b", 20, 1.5), Choice("c", 30, 0.1)]
    assert [c.scheme for c in hull(steps)] == ["a", "c"]


def test_more_bits_measure_less_error():
    rng = np.random.default_rng(0)
    for columns in (256, 96):
        w = rng.standard_normal((8, columns)).astype(np.float32)
        x = rng.standard_normal((16, columns)).astype(np.float32)
        schemes = ladder(columns)
        errors = measure(w, x, np.ones(columns, np.float32), schemes, 1)
        assert errors == sorted(errors, reverse=True)
        assert len(schemes) >= 3

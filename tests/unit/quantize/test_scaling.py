"""How AWQ chooses factors and how far it trusts what calibration says of columns."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.backends.base import Floats
from octavo.quantize.rounding import expanded, rounded
from octavo.quantize.scaling import Fold, Trial, cost_of
from octavo.weights import SCHEMES

WINDOW, WINDOWS, COLUMNS, ROWS = 32, 8, 128, 48
Q4_0 = SCHEMES["Q4_0"]
FOLD = Fold("norm.weight")


def weight() -> Floats:
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def inputs(sizes: Floats) -> Floats:
    """[tokens, columns]; sizes: of each window's columns, [windows, columns]."""
    draw = np.random.default_rng(1).standard_normal((WINDOWS, WINDOW, COLUMNS))
    return (draw * sizes[:, None]).astype(np.float32).reshape(-1, COLUMNS)


def always_large() -> Floats:
    sizes = np.ones((WINDOWS, COLUMNS), np.float32)
    sizes[:, ::16] = 12
    return inputs(sizes)


def large_by_chance() -> Floats:
    """Other columns are large in every window: what some windows say holds for no other."""
    sizes = np.ones((WINDOWS, COLUMNS), np.float32)
    for window, own in enumerate(sizes):
        own[window::WINDOWS] = 30
    return inputs(sizes)


def error(x: Floats, factor: Floats, cost: Floats | None) -> float:
    scaled = weight() * factor
    off = (expanded(rounded(scaled, Q4_0, cost, 1), scaled.shape, Q4_0) - scaled) / factor
    return float(np.square(x @ off.T).sum())


def test_large_columns_are_scaled_up_and_trusted() -> None:
    factor, _ = Trial.of(always_large(), WINDOW, 1).best([(weight(), Q4_0)], FOLD)
    others = np.delete(factor, np.s_[::16])
    assert factor[::16].min() > others.max()
    _, alone = Trial.of(always_large(), WINDOW, 1).best([(weight(), Q4_0)], None)
    assert alone[0] > 0


def test_what_holds_for_no_other_text_is_not_trusted() -> None:
    factor, trusts = Trial.of(large_by_chance(), WINDOW, 1).best([(weight(), Q4_0)], FOLD)
    assert trusts == [0.0]
    assert factor.max() / factor.min() < 1.5


@pytest.mark.parametrize("x", [always_large(), large_by_chance()], ids=["always", "by-chance"])
def test_never_worse_than_rounding_on_what_judges(x: Floats) -> None:
    trial = Trial.of(x, WINDOW, 1)
    factor, (trust,) = trial.best([(weight(), Q4_0)], FOLD)
    found = error(trial.left, factor, cost_of(trial.power, factor, trust))
    assert found <= error(trial.left, np.ones(COLUMNS, np.float32), None)


def test_a_weight_that_stays_float_has_no_say() -> None:
    trial = Trial.of(always_large(), WINDOW, 1)
    factor, trusts = trial.best([(weight(), None), (weight(), Q4_0)], FOLD)
    alone, _ = trial.best([(weight(), Q4_0)], FOLD)
    np.testing.assert_array_equal(factor, alone)
    assert trusts[0] == 1.0

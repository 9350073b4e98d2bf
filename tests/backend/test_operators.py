"""Every backend on every operator case, against the reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from octavo import _native
from octavo.errors import BackendError
from octavo.graph import Op
from tests.backend.cases import CASES, Case
from tests.backend.instruction_sets import OTHERS, assert_passes, in_parent, skip_missing
from tests.backend.judge import (
    BF16_MODE,
    MODES,
    PRODUCTS,
    Mode,
    error_of,
    expected_result,
    run_case,
    tolerance,
)

BF16_CASES = [c for c in CASES if c.op in PRODUCTS and _native.has_bf16_products()]


@cache
def reference_result(case: Case) -> np.ndarray:
    return expected_result(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.id)
def test_operator(case: Case, mode: Mode, request: pytest.FixtureRequest) -> None:
    check(case, mode, f"again: pytest '{request.node.nodeid}'")


@pytest.mark.parametrize("case", BF16_CASES, ids=lambda case: case.id)
def test_products_in_bf16(case: Case, request: pytest.FixtureRequest) -> None:
    check(case, BF16_MODE, f"again: pytest '{request.node.nodeid}'")


@in_parent
@pytest.mark.parametrize("isa", OTHERS)
def test_lesser_instruction_sets_pass_too(isa: str) -> None:
    """All but products, which test_kernels.py looks after."""
    skip_missing(isa)
    assert_passes(isa, __file__, "test_operator and not linear and not experts")


def check(case: Case, mode: Mode, rerun: str) -> None:
    try:
        got = run_case(case, mode.backend, mode.weights, mode.kv_dtype, mode.products)
    except BackendError as error:
        if case.id in mode.declines:
            pytest.skip(f"unsupported by {mode.id}: {mode.declines[case.id]}")
        pytest.fail(f"{mode.id} declines {case.id}, which it is not listed to: {error}")
    assert case.id not in mode.declines, "it runs now: take it off the list of declined cases"
    expected = reference_result(case)
    assert got.shape == expected.shape
    error, most = error_of(case, got, expected), tolerance(case, mode)
    assert error <= most, f"error {error:.2e} of the result's size, at most {most:.0e}; {rerun}"


def test_table_names_each_case_once_and_covers_every_operator() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    through_attention = {Op.KV_WRITE, Op.LATENT_WRITE}
    assert {case.op for case in CASES} | through_attention == set(Op)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.id)
def test_declined_cases_exist(mode: Mode) -> None:
    assert set(mode.declines) <= {case.id for case in CASES}

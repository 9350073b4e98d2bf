"""The int4 KV cache: attention over what its NumPy twin says the cache keeps, on every instruction
set; keys that are mostly alike keep what tells them apart; chunks change no bit."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.backends import get_backend
from octavo.backends.testing import Layout, run_op
from octavo.graph import AttentionAttrs, Op
from octavo.records import replace
from tests.backend.cases import CASES, Case
from tests.backend.instruction_sets import (
    ISA,
    OTHERS,
    assert_passes,
    in_parent,
    skip_missing,
)
from tests.backend.int4_twin import kept_keys, kept_values, padded, turned
from tests.backend.judge import MODES, inputs_of, largest_error, run_case

TOLERANCE = 0.2 if ISA in ("avx512", "amx") else 0.05
"""Largest error as a share of the result's size. With AVX-512 VNNI queries and probabilities are
rounded to bytes, elsewhere they stay floats; a number halfway between two codes may get either."""
ATTENTIONS = [
    case for case in CASES if case.op is Op.ATTENTION and case.id not in MODES[0].declines
]


def heads_of(x: np.ndarray, head_dim: int) -> np.ndarray:
    return x.reshape(len(x), -1, head_dim)


def kept(case: Case) -> np.ndarray:
    """The reference's attention over what the cache keeps, in its turned space and back."""
    a = case.attrs
    assert isinstance(a, AttentionAttrs)
    q, k, v, *rest = inputs_of(case)
    ends = np.cumsum(case.layout.lengths)[:-1]
    keys = np.concatenate([kept_keys(part) for part in np.split(heads_of(k, a.head_dim), ends)])
    values = kept_values(heads_of(v, a.head_dim))
    q = turned(padded(heads_of(q, a.head_dim)))
    wide = replace(a, head_dim=q.shape[-1])
    inputs = [part.reshape(len(part), -1) for part in (q, keys, values)]
    y = run_op(get_backend("reference"), Op.ATTENTION, [*inputs, *rest], wide, case.layout)
    return turned(heads_of(y, wide.head_dim))[..., : a.head_dim].reshape(len(y), -1)


@pytest.mark.parametrize("case", ATTENTIONS, ids=lambda case: case.id)
def test_it_is_what_the_twin_keeps(case: Case) -> None:
    got, expected = run_case(case, "cpu", "native", "int4"), kept(case)
    assert largest_error(got, expected) <= TOLERANCE * max(1.0, case.size**2)


def error_of_alike(common: float) -> float:
    """Root mean square error, as a share; common: the length of what all keys share, against 1 of
    what they do not."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(200, n * 128)).astype(np.float32) for n in (4, 2, 2))
    shared = rng.normal(size=256) * (rng.random(256) < 0.1)
    k = (k + common * shared).astype(np.float32)
    a, layout = AttentionAttrs(0, 4, 2, 128, scale=128**-0.5), Layout((200,))
    got, exact = (
        run_op(get_backend(name), Op.ATTENTION, [q, k, v], a, layout, kv_dtype=kv_dtype)
        for name, kv_dtype in (("cpu", "int4"), ("reference", "f32"))
    )
    return float(np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)))


def test_keys_that_are_mostly_alike_keep_what_tells_them_apart() -> None:
    """The error does not grow with what keys share, as it would if codes had to hold that too."""
    assert error_of_alike(0.0) <= 0.15
    assert error_of_alike(30.0) <= 0.2


@pytest.mark.parametrize("chunk", [1, 7, 32, 50])
def test_chunks_change_no_bit(chunk: int) -> None:
    case = next(case for case in ATTENTIONS if case.id == "attention-long")
    whole, cut = (replace(case, layout=replace(case.layout, chunk=c)) for c in (None, chunk))
    results = [run_case(one, "cpu", "native", "int4") for one in (whole, cut)]
    assert np.array_equal(*results)


@in_parent
@pytest.mark.parametrize("isa", OTHERS)
def test_lesser_instruction_sets_pass_too(isa: str) -> None:
    skip_missing(isa)
    select = "sequences or head80 or 12x2x128 or alike or softcap"
    assert_passes(isa, __file__, select)

"""In which form types are kept, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.weights import SCHEMES, Tensor
from octavo.weights.kept import TABLE_NAME, expansions, is_kept_as_floats, kept_as, kept_bytes

OTHERWISE = {
    **dict.fromkeys(["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"], TABLE_NAME),
    **dict.fromkeys(["IQ3_XXS", "IQ3_S"], TABLE_NAME),
    "TQ1_0": "TQ2_0",
    "Q1_0": "Q4_0",
    **dict.fromkeys(["Q8_K", "F64", "I8", "I16", "I32", "I64"], "F32"),
}


def _zeros(scheme: str, shape: tuple[int, ...]) -> Tensor:
    known = SCHEMES[scheme]
    return Tensor("x", shape, known, np.zeros(known.num_bytes(shape), np.uint8))


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_the_form_of_every_type(name: str) -> None:
    assert kept_as(SCHEMES[name]) == OTHERWISE.get(name, name)


def test_which_forms_take_float_activations() -> None:
    floats = {name for name, scheme in SCHEMES.items() if is_kept_as_floats(scheme)}
    assert floats == {"F32", "F16", "BF16", "Q8_K", "F64", "I8", "I16", "I32", "I64"}


def test_bytes_of_matrices_stacks_and_vectors() -> None:
    assert kept_bytes(_zeros("Q8_0", (64, 64))) == 64 * 64 * 34 // 32
    assert kept_bytes(_zeros("Q8_0", (20, 64))) == 32 * 64 * 34 // 32  # panels of 16 rows
    assert kept_bytes(_zeros("Q8_0", (3, 16, 64))) == 3 * 16 * 64 * 34 // 32
    assert kept_bytes(_zeros("TQ2_0", (16, 256))) == 16 * 66 + 32  # panels end on a line
    assert kept_bytes(_zeros("F16", (64,))) == 256


def test_the_cost_is_told_by_type_and_the_largest_first() -> None:
    tensors = [
        _zeros("IQ2_XXS", (16, 256)),
        _zeros("I8", (16, 256)),
        _zeros("I8", (16, 256)),
        _zeros("Q4_K", (16, 256)),
    ]
    found = expansions(tensors)
    assert [(e.scheme.name, e.extra_bytes) for e in found] == [
        ("I8", 2 * 16 * 256 * 3),
        ("IQ2_XXS", kept_bytes(tensors[0]) - 16 * 66),
    ]
    assert str(found[0]) == "type I8 is kept as F32: 0.0 MB more"
    assert f"IQ2_XXS is kept as {TABLE_NAME}" in str(found[1])

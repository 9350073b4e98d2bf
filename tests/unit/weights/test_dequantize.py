"""Dequantization against gguf-py, which others wrote and check against ggml."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.weights import SCHEMES, Scheme, Tensor, dequantize

NATIVE = [scheme for scheme in SCHEMES.values() if scheme.native]


def test_block_sizes_are_those_of_gguf_py() -> None:
    known = {kind.name: (int(kind), *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    ours = {s.name: (s.ggml_type, s.block_elems, s.block_bytes) for s in SCHEMES.values()}
    # A newer gguf-py may know more types, an older one fewer; those it shares must agree.
    shared = known.keys() & ours.keys()
    assert len(shared) > 28
    assert {name: ours[name] for name in shared} == {name: known[name] for name in shared}


def test_native_schemes() -> None:
    names = {scheme.name for scheme in NATIVE}
    floats = {"F32", "F16", "BF16"}
    assert names == floats | {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"}


def _expected(scheme: Scheme, rows: np.ndarray) -> np.ndarray:
    stored = {"F32": np.float32, "F16": np.float16}.get(scheme.name, np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        kind = gguf.GGMLQuantizationType[scheme.name]
        return gguf.dequantize(rows.view(stored), kind).astype(np.float32)


def _check(scheme: Scheme, seed: int, num_rows: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (num_rows, blocks * scheme.block_bytes), dtype=np.uint8)
    tensor = Tensor("x", (num_rows, blocks * scheme.block_elems), scheme, rows.reshape(-1))
    ours, theirs = dequantize(tensor), _expected(scheme, rows)
    assert ours.shape == tensor.shape
    numbers = ~np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), ~numbers)
    assert np.array_equal(ours.view(np.uint32)[numbers], theirs.view(np.uint32)[numbers])


@pytest.mark.parametrize("scheme", NATIVE, ids=lambda scheme: scheme.name)
def test_random_bytes_give_the_same_bits(scheme: Scheme) -> None:
    _check(scheme, seed=1, num_rows=4, blocks=2048)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NATIVE), st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 5))
def test_any_shape_gives_the_same_bits(scheme: Scheme, seed: int, rows: int, blocks: int) -> None:
    _check(scheme, seed, rows, blocks)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_16_bit_pattern(name: str) -> None:
    scheme = SCHEMES[name]
    rows = np.arange(65536, dtype=np.uint16).view(np.uint8).reshape(1, -1)
    ours = dequantize(Tensor("x", (65536,), scheme, rows.reshape(-1)))
    assert np.array_equal(ours, _expected(scheme, rows)[0], equal_nan=True)


def test_data_need_not_be_aligned() -> None:
    padded = np.zeros(17, np.uint8)
    padded[1:] = np.arange(4, dtype=np.float32).view(np.uint8)
    assert dequantize(Tensor("x", (2, 2), SCHEMES["F32"], padded[1:])).tolist() == [[0, 1], [2, 3]]

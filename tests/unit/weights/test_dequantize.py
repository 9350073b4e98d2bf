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


# What gguf-py has sizes of but does not expand.
UNCHECKED = {"Q8_K", "Q1_0", "F64", "I8", "I16", "I32", "I64"}
CHECKED = [scheme for scheme in NATIVE if scheme.name not in UNCHECKED]


def test_all_types_are_native_but_one() -> None:
    assert {scheme.name for scheme in SCHEMES.values()} - {s.name for s in NATIVE} == {"Q8_1"}


def _expected(scheme: Scheme, rows: np.ndarray) -> np.ndarray:
    stored = {"F32": np.float32, "F16": np.float16}.get(scheme.name, np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        kind = gguf.GGMLQuantizationType[scheme.name]
        return gguf.dequantize(rows.view(stored), kind).astype(np.float32)


def _check(scheme: Scheme, seed: int, num_rows: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (num_rows, blocks * scheme.block_bytes), dtype=np.uint8)
    _compare(scheme, rows)


def _compare(scheme: Scheme, rows: np.ndarray) -> None:
    shape = (len(rows), rows.shape[1] // scheme.block_bytes * scheme.block_elems)
    tensor = Tensor("x", shape, scheme, rows.reshape(-1))
    ours, theirs = dequantize(tensor), _expected(scheme, rows)
    assert ours.shape == tensor.shape
    numbers = ~np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), ~numbers)
    assert np.array_equal(ours.view(np.uint32)[numbers], theirs.view(np.uint32)[numbers])


@pytest.mark.parametrize("scheme", CHECKED, ids=lambda scheme: scheme.name)
def test_random_bytes_give_the_same_bits(scheme: Scheme) -> None:
    _check(scheme, seed=1, num_rows=4, blocks=512)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CHECKED), st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 5))
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


# Float16 bits that are no plain number: zeros, subnormals, the largest, infinities, NaNs.
ODD_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFC00, 0x7C00, 0x7E01, 0xFD55]


@pytest.mark.parametrize("scheme", CHECKED, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("half", ODD_HALVES, ids=hex)
def test_odd_scales_give_the_same_bits(scheme: Scheme, half: int) -> None:
    """Wherever the type has its scales: every 16-bit field of a block in turn is the odd number."""
    rng = np.random.default_rng(2)
    odd = np.array([half], np.uint16).view(np.uint8)
    fields = scheme.block_bytes // 2
    rows = rng.integers(0, 256, (1, max(fields, 1) * scheme.block_bytes), dtype=np.uint8)
    for field in range(fields):
        at = field * scheme.block_bytes + field * 2
        rows[0, at : at + 2] = odd
    _compare(scheme, rows)


def _tensor(name: str, count: int, rows: np.ndarray) -> Tensor:
    return Tensor("x", (count,), SCHEMES[name], np.ascontiguousarray(rows).view(np.uint8))


def test_q8_k_is_a_float_scale_and_bytes() -> None:
    rng = np.random.default_rng(3)
    block = np.zeros(292, np.uint8)
    block[:4] = np.array([0.37], np.float32).view(np.uint8)
    q = rng.integers(-128, 128, 256).astype(np.int8)
    block[4:260] = q.view(np.uint8)
    assert np.array_equal(dequantize(_tensor("Q8_K", 256, block)), np.float32(0.37) * q)


def test_q1_0_is_signs() -> None:
    rng = np.random.default_rng(3)
    block = rng.integers(0, 256, 18, dtype=np.uint8)
    block[:2] = np.array([0.5], np.float16).view(np.uint8)
    bits = np.unpackbits(block[2:], bitorder="little")
    assert np.array_equal(dequantize(_tensor("Q1_0", 128, block)), np.where(bits, 0.5, -0.5))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("F64", np.float64), ("I8", np.int8), ("I16", np.int16), ("I32", np.int32), ("I64", np.int64)],
)
def test_plain_numbers_round_to_float32(name: str, dtype: type) -> None:
    bits = np.random.default_rng(4).integers(0, 256, 512, dtype=np.uint8)
    values = bits.view(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        want = values.astype(np.float32)
    assert np.array_equal(dequantize(_tensor(name, values.size, values)), want, equal_nan=True)

"""Packed products against float64: every weight type on every instruction set.

The instruction set is chosen once a process, so the checks for the lesser ones run in a child.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from octavo import _native
from octavo.weights.quantized.bits import E2M1, E4M3, E5M2
from octavo.weights.quantized.origins import CODE_TABLES, CODE_UNITS
from octavo.weights.scheme import MADE_SCHEMES
from tests.backend.instruction_sets import (
    OTHERS,
    assert_passes,
    in_parent,
    skip_missing,
)

Array = npt.NDArray[np.float32]
BF16 = _native.multiplies_bf16()


class Weights(NamedTuple):
    """Rows of one type: its id, raw bytes [n, row bytes] and what they mean, float32 [n, k]."""

    type: int
    raw: npt.NDArray[np.uint8]
    values: Array


# Types that have panels of their own, and those that are kept as another's. IQ2_XXS stands for all
# of IQ1, IQ2 and IQ3, which share one kind of panel; each of them is read back.
OWN = [
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4", "NVFP4"),
]
# Types that no GGUF file has: what quantized safetensors become.
MADE = MADE_SCHEMES
HELD_FLOATS = ["E5M2"]  # products take float activations
QUANTIZED = [*OWN, "IQ2_XXS", "IQ3_XXS", *(name for name in MADE if name not in HELD_FLOATS)]
TABLE = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
KEPT_OTHERWISE = [*TABLE, "TQ1_0"]
FLOATS = ["F32", "F16", "BF16"]
TYPES = (*FLOATS, *HELD_FLOATS, *QUANTIZED)
ALL_TYPES = {t.name: t for t in gguf.GGMLQuantizationType}
# Bytes of the float16 fields of a block.
HALVES = {
    **dict.fromkeys(["Q4_1", "Q5_1", "Q4_K", "Q5_K"], (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    **dict.fromkeys(["MXFP4", "NVFP4", "IQ1_M"], ()),
}


SUPER_BLOCKS = [t for t, (elements, _) in gguf.GGML_QUANT_SIZES.items() if elements == 256]


def random_weights(name: str, n: int, k: int, seed: int = 0, fill: int | None = None) -> Weights:
    """Random bytes (or all `fill`) in every block, with scales of a sane size."""
    rng = np.random.default_rng(seed)
    if name in MADE:
        return made_weights(name, n, k, rng, fill)
    kind = ALL_TYPES[name]
    if name in FLOATS:
        values = rng.standard_normal((n, k)).astype(np.float32)
        if name == "BF16":
            raw = (values.view(np.uint32) >> 16).astype(np.uint16)
            values = (raw.astype(np.uint32) << 16).view(np.float32)
            return Weights(kind, raw.view(np.uint8).reshape(n, -1), values)
        raw = values.astype(np.float32 if name == "F32" else np.float16)
        return Weights(kind, raw.view(np.uint8).reshape(n, -1), raw.astype(np.float32))
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (n, k // block, size), dtype=np.uint8)
    if fill is not None:
        raw[:] = fill
    if name == "MXFP4":  # the exponents
        raw[:, :, 0] = rng.integers(118, 124, (n, k // block))
    if name == "NVFP4":
        raw[:, :, :4] = rng.integers(0, 0x38, (n, k // block, 4))
    if name == "IQ1_M":  # the float16's high nibble is in the last 16-bit scale
        raw[:, :, 55] = (raw[:, :, 55] & 15) | 0x20
    for at in HALVES.get(name, (0,)):
        scale = rng.uniform(-0.02, 0.02, (n, k // block)).astype(np.float16)
        raw[:, :, at : at + 2] = scale.view(np.uint8).reshape(n, k // block, 2)
    raw = raw.reshape(n, -1)
    return Weights(kind, raw, gguf.quants.dequantize(raw, kind).reshape(n, k))


def made_weights(name: str, n: int, k: int, rng: np.random.Generator, fill: int | None) -> Weights:
    """Codes of any kind that are numbers; scales and zero points that their blocks share."""
    scheme = MADE[name]
    blocks = np.empty((n, k // 32, scheme.block_bytes), np.uint8)

    def shared(columns: int, numbers: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """[n, ...] -> one for each block of 32, the same for so many columns."""
        return np.repeat(numbers, columns // 32, axis=1)[:, : k // 32, None]

    def scales(columns: int, dtype: type[np.floating]) -> npt.NDArray[np.generic]:
        return shared(columns, rng.uniform(-0.02, 0.02, (n, -(-k // columns))).astype(dtype))

    codes = rng.integers(0, 256, (n, k // 32, 32), dtype=np.uint8)
    if fill is not None:
        codes[:] = fill
    if name == "E5M2":
        codes[codes & 124 == 124] -= 4  # not a finite number
        d = scales(32, np.float32)
        values = E5M2[codes]
        blocks[:, :, 4:] = codes
    elif name.startswith("E4M3"):
        codes[codes & 127 == 127] -= 1  # not a number
        d = scales(32 if name == "E4M3_32" else 128, np.float32)
        values = E4M3[codes]
        blocks[:, :, 4:] = codes
    elif name == "NVFP4_D":
        d = scales(256, np.float32)
        codes &= 15
        inner = rng.integers(0, 0x7F, (n, k // 32, 2), dtype=np.uint8)
        values = E2M1[codes] * (E4M3[inner] / 2).repeat(16, axis=2)
        blocks[:, :, 4:6] = inner
        blocks[:, :, 6:] = codes[:, :, ::2] | codes[:, :, 1::2] << 4
    elif name in CODE_TABLES:
        d = scales(32, np.float16)
        codes &= 15
        values = np.round(CODE_TABLES[name] / CODE_UNITS[name])[codes]
        blocks[:, :, 2:] = codes[:, :, :16] | codes[:, :, 16:] << 4
    else:
        run = 32 if name in ("Q4_Z", "Q8_Z") else 128
        d = scales(run, np.float16)
        least, most = (-128, 128) if name.startswith("Q8") else (0, 16)
        zeros = rng.integers(least, most + 1, (n, -(-k // run)))
        zero = shared(run, zeros.astype(np.uint8 if name == "Q4_Z" else np.int16))
        at = 2 + zero.dtype.itemsize
        blocks[:, :, 2:at] = zero.view(np.uint8)
        if name.startswith("Q8"):
            values = codes.astype(np.int32) - 128 - zero
            blocks[:, :, at:] = codes
        else:
            codes &= 15
            values = codes.astype(np.int32) - zero
            blocks[:, :, at:] = codes[:, :, :16] | codes[:, :, 16:] << 4
    blocks[:, :, : d.dtype.itemsize] = d.view(np.uint8)
    numbers = values.astype(np.float32) * d.astype(np.float32)
    return Weights(scheme.ggml_type, blocks.reshape(n, -1), numbers.reshape(n, k))


def packed(w: Weights, as_float: bool = False) -> _native.PackedMatrix:
    n, k = w.values.shape
    return _native.PackedMatrix(int(w.type), n, k, w.raw.reshape(-1), as_float)


def activations(m: int, k: int, seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, k)).astype(np.float32)
    return x * rng.choice(np.float32([1, 1, 1, 30]), (m, k))


def seen(x: Array) -> npt.NDArray[np.float64]:
    """The activations as the products see them."""
    if BF16:
        return _native.round_rows(x).astype(np.float64)
    q, scale, _ = _native.quantize_rows(x)
    return q.astype(np.float64) * np.repeat(scale.astype(np.float64), 32, axis=1)


def assert_product(w: Weights, x: npt.NDArray[np.float64], got: Array) -> None:
    want = x @ w.values.astype(np.float64).T
    # Rounding of the float32 sums: proportional to the sum of magnitudes.
    bound = np.abs(x) @ np.abs(w.values.astype(np.float64)).T
    assert np.all(np.isfinite(got))
    assert np.all(np.abs(got - want) <= bound * 2e-6)


def assert_quantized_product(w: Weights, x: Array, got: Array, random: bool = True) -> None:
    """x: before it is rounded. random: elements are unlike each other."""
    if not BF16:
        return assert_product(w, seen(x), got)
    # Scales, mins and elements are rounded to 11 bits, then elements to 8.
    rounded, values = seen(x), w.values.astype(np.float64)
    want = rounded @ values.T
    largest = np.abs(values).max(axis=1, keepdims=True)
    bound = np.abs(rounded) @ (np.abs(values) * 2.0**-8 + largest * 2.0**-9).T
    assert np.all(np.isfinite(got))
    assert np.all(np.abs(got - want) <= bound)
    if not random:
        return None
    # Which is rarely needed: errors of elements are independent.
    scale = np.sqrt(rounded**2 @ (values**2).T)
    assert np.sqrt(np.mean((got - want) ** 2)) <= 0.004 * np.sqrt(np.mean(scale**2)) + 1e-30
    return None


def columns(name: str) -> list[int]:
    block = 32 if name in MADE else gguf.GGML_QUANT_SIZES[ALL_TYPES[name]][0]
    return [256, 1536] if block == 256 else [k for k in (32, 96, 576, 640) if k % block == 0]


CASES = [(name, k) for name in QUANTIZED for k in columns(name)]


@pytest.mark.parametrize(("name", "k"), CASES)
def test_quantized_product_equals_float64(name: str, k: int) -> None:
    w = random_weights(name, 53, k)
    x = activations(13, k)
    assert_quantized_product(w, x, packed(w).linear(x))


@pytest.mark.parametrize("name", FLOATS + HELD_FLOATS)
@pytest.mark.parametrize("k", [1, 7, 64, 130])
def test_float_product_equals_float64(name: str, k: int) -> None:
    w = random_weights(name, 37, k if name in FLOATS else -(-k // 32) * 32)
    k = w.values.shape[1]
    x = activations(8, k)
    assert_product(w, x.astype(np.float64), packed(w).linear(x))


@pytest.mark.parametrize("name", QUANTIZED)
def test_product_as_float_equals_float64(name: str) -> None:
    w = random_weights(name, 21, 512)
    x = activations(5, 512)
    assert_product(w, x.astype(np.float64), packed(w, as_float=True).linear(x))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("fill", [0, 0x7F, 0x80, 0xFF])
def test_extremes_do_not_saturate(name: str, fill: int) -> None:
    w = random_weights(name, 16, 512, fill=fill)
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), (3, 512))
    x = np.concatenate([np.ones((1, 512), np.float32), -np.ones((1, 512), np.float32), signs])
    assert BF16 or set(np.unique(_native.quantize_rows(x)[0])) == {-127, 127}
    got = packed(w).linear(x)
    assert_quantized_product(w, x, got, random=False)
    many = (32, 1)  # rows enough for every kernel
    np.testing.assert_array_equal(packed(w).linear(np.tile(x, many)), np.tile(got, many))


@pytest.mark.parametrize("name", QUANTIZED + FLOATS + HELD_FLOATS)
def test_a_row_has_the_same_bits_in_any_company(name: str) -> None:
    """Any number of rows, range of rows, range of panels and number of threads."""
    w = random_weights(name, 150, 512)
    matrix = packed(w)
    x = activations(40, 512)
    alone = np.concatenate([matrix.linear(x[i : i + 1]) for i in range(40)])
    for m in range(1, 41):
        np.testing.assert_array_equal(matrix.linear(x[:m]), alone[:m])
    for threads in (2, 3):
        np.testing.assert_array_equal(matrix.linear(x, threads=threads), alone)
    for begin, end in [(0, 1), (3, 4), (1, 8), (5, 10), (9, 10)]:
        got = matrix.linear(x, panel_begin=begin, panel_end=end)
        columns = slice(begin * 16, min(end * 16, 150))
        np.testing.assert_array_equal(got[:, columns], alone[:, columns])
        assert np.isnan(np.delete(got, np.r_[columns], axis=1)).all()
    for begin, end in [(0, 4), (7, 9), (5, 31), (39, 40)]:
        got = matrix.linear(x, row_begin=begin, row_end=end)
        np.testing.assert_array_equal(got[begin:end], alone[begin:end])
        assert np.isnan(np.delete(got, np.r_[begin:end], axis=0)).all()


@pytest.mark.parametrize("name", QUANTIZED)
def test_long_inputs_have_the_same_bits(name: str) -> None:
    """Enough rows and columns that the activations are cut into chunks."""
    w = random_weights(name, 41, 8960)
    matrix = packed(w)
    x = activations(130, 8960)
    alone = np.concatenate([matrix.linear(x[i : i + 1]) for i in (0, 57, 71, 129)])
    np.testing.assert_array_equal(matrix.linear(x)[[0, 57, 71, 129]], alone)


@pytest.mark.parametrize("as_float", [False, True])
@pytest.mark.parametrize("name", QUANTIZED + FLOATS + HELD_FLOATS)
def test_rows_read_back(name: str, as_float: bool) -> None:
    w = random_weights(name, 21, 512)
    matrix = packed(w, as_float)
    got = np.stack([matrix.unpack_row(i) for i in range(21)])
    np.testing.assert_allclose(got, w.values, rtol=1e-6, atol=0)
    for padding in range(21, 32):
        assert not matrix.unpack_row(padding).any()


@pytest.mark.parametrize("name", KEPT_OTHERWISE)
def test_types_without_panels_of_their_own_are_kept_exactly(name: str) -> None:
    w = random_weights(name, 21, 512)
    matrix = packed(w)
    got = np.stack([matrix.unpack_row(i) for i in range(21)])
    np.testing.assert_array_equal(got, w.values)
    x = activations(5, 512)
    assert_quantized_product(w, x, matrix.linear(x))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 127, 253, 254, 255])
def test_every_power_of_mxfp4_is_exact(exponent: int) -> None:
    """The smallest scales are subnormal floats, the largest 2^127."""
    w = random_weights("MXFP4", 16, 32)
    w.raw[:] &= 0x11  # numbers that the largest power leaves finite
    w.raw.reshape(16, 17)[:, 0] = exponent
    values = gguf.quants.dequantize(w.raw, ALL_TYPES["MXFP4"])
    matrix = _native.PackedMatrix(int(w.type), 16, 32, w.raw.reshape(-1), False)
    got = np.stack([matrix.unpack_row(i) for i in range(16)])
    np.testing.assert_array_equal(got, values)
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 127.0 * 2.0 ** (-20 if exponent > 127 else 20)
    np.testing.assert_array_equal(matrix.linear(x)[0], values[:, 5] * x[0, 5])


@pytest.mark.parametrize("name", OWN + FLOATS)
def test_packed_size_is_about_the_files(name: str) -> None:
    w = random_weights(name, 64, 1536)
    most = 1.05 if BF16 else 1.04  # Q3_K: its 6-bit scales are bytes; with bf16 64 more a panel
    assert packed(w).size_bytes <= w.raw.nbytes * most


def test_quantizer_rounds_to_nearest_per_group() -> None:
    x = activations(3, 100)
    q, scale, total = _native.quantize_rows(x)
    assert q.shape == (3, 128)
    assert not q[:, 100:].any()
    groups = np.pad(x, ((0, 0), (0, 28))).reshape(3, 4, 32)
    np.testing.assert_allclose(scale, np.abs(groups).max(axis=2) / 127, rtol=1e-6)
    error = np.abs(q.reshape(3, 4, 32) * scale[:, :, None] - groups)
    assert np.all(error <= scale[:, :, None] * 0.5001)
    np.testing.assert_allclose(total, q.reshape(3, 4, 32).sum(axis=2) * scale, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 5, 7, 8])
def test_a_group_is_quantized_the_same_beside_others(groups: int) -> None:
    x = activations(40, groups * 32)
    x[:, ::31] *= 1e20
    x[3, :32] = 0.0
    x[4, -1] = np.nan
    x[5, 0] = -np.inf
    together = _native.quantize_rows(x)
    alone = _native.quantize_rows(x.reshape(-1, 32))
    for of_row, of_group in zip(together, alone, strict=True):
        assert of_row.tobytes() == of_group.tobytes()


def test_zero_groups_are_zero_and_bad_values_show() -> None:
    w = random_weights("Q8_0", 16, 64)
    x = np.zeros((4, 64), np.float32)
    x[1, 40] = np.nan
    x[2, 3] = np.inf
    x[3, 3] = 1e-42
    out = packed(w).linear(x)
    assert not out[0].any()
    assert np.isnan(out[1:3]).all()
    assert np.abs(out[3]).max() < 1e-30


@pytest.mark.parametrize(
    ("kind", "n", "k", "message"),
    [(9, 4, 256, "weight type 9"), (12, 4, 128, "multiple of 256"), (8, 4, 33, "multiple of 32")],
)
def test_unpackable_matrices_are_refused(kind: int, n: int, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.PackedMatrix(kind, n, k, np.zeros(64, np.uint8))


def digest(name: str) -> str:
    """Bits of one product, to compare between instruction sets."""
    w = random_weights(name, 37, 512)
    return str(packed(w).linear(activations(33, 512)).tobytes().hex())


@in_parent
@pytest.mark.parametrize("isa", OTHERS)
def test_lesser_instruction_sets_pass_too(isa: str) -> None:
    skip_missing(isa)
    # The scalar kernel takes a row at a time: company is no question, only slow.
    select = "not long_inputs and not company" if isa == "scalar" else ""
    assert_passes(isa, __file__, select)


def has_bf16() -> bool:
    """Whether this machine has the set that multiplies bf16, which is used where asked for."""
    code = "from octavo import _native; print(_native.has_bf16_products())"
    return subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


@in_parent
def test_the_set_of_bf16_passes_too() -> None:
    if not has_bf16():
        pytest.skip("amxbf16 needs amx_bf16, avx512_fp16 and a compiler that knows both")
    select = "not quantizer_rounds and not quantized_the_same"  # what they test is int8
    assert_passes("amxbf16", __file__, select)


if BF16:  # in the child of the test above

    def test_bf16_rows_round_to_nearest() -> None:
        x = activations(3, 100)
        got = _native.round_rows(x)
        assert np.all(np.abs(got - x) <= np.abs(x) * 2.0**-8)
        assert not np.any(got.view(np.uint32) & 0xFFFF)
        zeros = _native.round_rows(np.zeros((1, 64), np.float32))
        assert not zeros.any()

    @pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q4_K"])
    @pytest.mark.parametrize("exponent", [-40, -20, -10, 0, 10])
    def test_bf16_rows_of_any_size_keep_their_digits(name: str, exponent: int) -> None:
        """Weights that are all small or large lose no more than others."""
        w = random_weights(name, 16, 512)
        factor = np.float32(2.0**exponent)
        raw = w.raw.reshape(16, -1, gguf.GGML_QUANT_SIZES[ALL_TYPES[name]][1]).copy()
        for at in HALVES.get(name, (0,)):
            scale = raw[:, :, at : at + 2].copy().view(np.float16) * factor
            raw[:, :, at : at + 2] = scale.astype(np.float16).view(np.uint8)
        raw = raw.reshape(16, -1)
        values = gguf.quants.dequantize(raw, ALL_TYPES[name]).reshape(16, 512)
        x = activations(4, 512)
        assert_quantized_product(
            Weights(w.type, raw, values), x, packed(w._replace(raw=raw)).linear(x)
        )


@in_parent
@pytest.mark.parametrize("isa", OTHERS)
def test_instruction_sets_agree_to_the_bit(isa: str) -> None:
    skip_missing(isa)
    code = (
        "from tests.backend.instruction_sets import ISA\n"
        "from tests.backend.test_kernels import TYPES, digest\n"
        "print(ISA, *map(digest, TYPES))"
    )
    environment = {**os.environ, "OCTAVO_ISA": isa}
    command, root = [sys.executable, "-c", code], Path(__file__).parents[2]
    out = subprocess.check_output(command, env=environment, text=True, cwd=root)
    found, *digests = out.split()
    assert found == isa
    assert digests == [digest(name) for name in TYPES]

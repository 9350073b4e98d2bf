"""Quantized modules: every format's numbers for any shape and group, and what is refused.

A little longer than files should be: all formats are held to one check.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import FormatError, ModelError
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize
from octavo.weights.quantized import assemble
from octavo.weights.quantized.choose import as_filed
from octavo.weights.quantized.origins import CODE_UNITS
from octavo.weights.safetensors import open_safetensors
from octavo.weights.tensor import DerivedTensor, GroupedTensor
from tests.support import quantized as make

FIXTURES = Path(__file__).parents[2] / "fixtures" / "compressed"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}


def _read(parts: make.Parts, config: dict[str, Any]) -> DerivedTensor:
    """The weight of one module 'layer'."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        make.write_safetensors(path, {f"layer.{name}": part for name, part in parts.items()})
        file = open_safetensors(path)
    found = assemble(
        path.parent, {"quantization_config": config}, dict.fromkeys(file.entries, file)
    )
    tensor = found.get("layer.weight")
    if tensor is None:
        raise FormatError(f"layer.weight is not there: {sorted(found)}")
    return tensor


def _check(packed: make.Packed, config: dict[str, Any]) -> DerivedTensor:
    parts, dense = packed
    tensor = _read(parts, config)
    assert tensor.shape == dense.shape
    np.testing.assert_array_equal(dequantize(tensor), dense)
    if isinstance(tensor, GroupedTensor):
        held = tensor.by_group
        blocks = dequantize(Tensor("x", held.shape, held.scheme, held.data))
        np.testing.assert_array_equal(blocks, dense[:, tensor.order])
        np.testing.assert_array_equal(dequantize(held), blocks)
        assert sorted(tensor.order) == list(range(tensor.shape[1]))
    blocks = dequantize(Tensor("x", tensor.shape, tensor.scheme, tensor.data))
    exact = tensor.scheme.block_elems > 1
    wanted = dense if exact else dense.astype(np.float16).astype(np.float32)
    rounded = 0.0045 * 0.5 if tensor.scheme.name in CODE_UNITS else 0  # of the largest absmax
    np.testing.assert_allclose(blocks, wanted, rtol=0, atol=rounded)
    return tensor


GROUPS = st.sampled_from([16, 32, 64, 128])
KINDS = st.sampled_from(["e4m3", "e5m2"])
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 4), GROUPS, st.integers(1, 3))
def test_awq_of_any_shape(seed: int, eights: int, group: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    tensor = _check(make.awq(rng, eights * 8, group * groups, group), AWQ | {"group_size": group})
    assert tensor.scheme.name == {16: "F16", 128: "Q4_Z128"}.get(group, "Q4_Z")


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    st.sampled_from([2, 3, 4, 8]),
    GROUPS,
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_gptq_of_any_kind(
    seed: int, bits: int, group: int, groups: int, sym: bool, spread: bool, second: bool
) -> None:
    rng = np.random.default_rng(seed)
    k = group * groups * (1 if bits != 3 or group * groups % 32 == 0 else 2)
    form = "gptq_v2" if second else "gptq"
    config = GPTQ | {"bits": bits, "group_size": group, "sym": sym, "checkpoint_format": form}
    packed = make.gptq(rng, 32, k, group, bits=bits, symmetric=sym, spread=spread, second=second)
    _check(packed, config)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from([4, 8]), GROUPS, st.integers(1, 11), st.booleans())
def test_gptq_with_a_short_last_group(
    seed: int, bits: int, group: int, blocks: int, sym: bool
) -> None:
    packed = make.gptq(
        np.random.default_rng(seed), 32, 32 * blocks, group, bits=bits, symmetric=sym
    )
    tensor = _check(packed, GPTQ | {"bits": bits, "group_size": group, "sym": sym})
    assert (tensor.scheme.name == "F16") == (group == 16)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 8), st.integers(1, 20), GROUPS, st.integers(1, 3), st.booleans())
def test_pack_quantized_of_any_kind(
    seed: int, bits: int, n: int, group: int, groups: int, symmetric: bool
) -> None:
    rng = np.random.default_rng(seed)
    weights = {"num_bits": bits, "strategy": "group", "group_size": group, "symmetric": symmetric}
    config = _compressed("pack-quantized", weights)
    packed = make.pack_quantized(rng, n, group * groups, group, bits=bits, symmetric=symmetric)
    _check(packed, config)


@settings(max_examples=40, deadline=None)
@given(
    SEEDS, st.integers(1, 40), st.integers(1, 40), st.sampled_from(["row", "whole", "block"]), KINDS
)
def test_fp8_of_any_shape(seed: int, n: int, k: int, scale: str, kind: str) -> None:
    packed = make.fp8(np.random.default_rng(seed), n, k, scale=scale, block=16, kind=kind)
    config: dict[str, Any] = {"quant_method": "fp8"}
    _check(packed, config | ({"weight_block_size": [16, 16]} if scale == "block" else {}))


@settings(max_examples=20, deadline=None)
@given(
    SEEDS,
    st.sampled_from([3, 20, 130]),
    st.integers(1, 9),
    st.sampled_from([None, 32, 64, 96, 128, 256]),
    KINDS,
)
def test_fp8_stays_8_bits(seed: int, n: int, groups: int, block: int | None, kind: str) -> None:
    """Blocks of any multiple of 32 columns; the last of a row may be short."""
    size, k = block or 128, 32 * groups
    scale = "row" if block is None else "block"
    packed = make.fp8(np.random.default_rng(seed), n, k, scale=scale, block=size, kind=kind)
    config: dict[str, Any] = {"quant_method": "fp8", "fmt": kind}
    tensor = _check(packed, config | ({"weight_block_size": [size, size]} if block else {}))
    whole = size % 128 == 0 or size >= k
    assert tensor.scheme.name == {"e4m3": "E4M3" if whole else "E4M3_32", "e5m2": "E5M2"}[kind]


@pytest.mark.parametrize(("kind", "code"), [("e4m3", 0xFF), ("e5m2", 0x7C), ("e5m2", 0xFF)])
def test_fp8_that_is_not_a_number_is_refused(kind: str, code: int) -> None:
    parts, _ = make.fp8(np.random.default_rng(0), 4, 64, kind=kind)
    parts["weight"][1][2, 3] = code
    with pytest.raises(FormatError, match=f"not finite numbers.*{code:#x}"):
        _ = _read(parts, {"quant_method": "fp8"}).data


def test_fp8_with_a_scale_that_is_not_a_number_is_refused() -> None:
    parts, _ = make.fp8(np.random.default_rng(0), 4, 64)
    parts["weight_scale"][1][2] = np.inf
    with pytest.raises(FormatError, match="scales that are not finite"):
        _ = _read(parts, {"quant_method": "fp8"}).data


def test_every_e5m2_number_is_exact() -> None:
    codes = np.array([c for c in range(256) if c & 0x7C != 0x7C], np.uint8)[:224].reshape(7, 32)
    parts: make.Parts = {
        "weight": ("F8_E5M2", codes),
        "weight_scale": ("F32", np.ones(1, np.float32)),
    }
    dense = np.array([[make.e5m2(int(c)) for c in row] for row in codes], np.float32)
    _check((parts, dense), {"quant_method": "fp8", "fmt": "e5m2"})


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(1, 9), st.integers(1, 70), st.booleans(), st.sampled_from(["nf4", "fp4"]))
def test_4_bit_codes_of_any_shape(seed: int, n: int, half: int, nested: bool, kind: str) -> None:
    packed = make.bnb4(np.random.default_rng(seed), n, 2 * half, nested=nested, kind=kind)
    tensor = _check(packed, {"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert tensor.scheme.name == ("F16" if half % 16 else kind.upper())


def test_4_bit_codes_whose_scales_are_beyond_half_precision() -> None:
    parts, _ = make.bnb4(np.random.default_rng(0), 4, 64, nested=False)
    parts["weight.absmax"][1][2] = 1e9
    tensor = _read(parts, {"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(FormatError, match="beyond the range of half precision"):
        _ = tensor.data


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.integers(1, 20), st.integers(1, 9))
def test_bytes_with_zero_points(seed: int, n: int, runs: int) -> None:
    parts, dense = make.int_quantized(np.random.default_rng(seed), n, 32 * runs, symmetric=False)
    weights = {"num_bits": 8, "strategy": "channel", "symmetric": False}
    tensor = _read(parts, _compressed("int-quantized", weights))
    assert tensor.scheme.name == ("Q8_Z" if runs % 4 else "Q8_Z128")
    blocks = dequantize(Tensor("x", tensor.shape, tensor.scheme, tensor.data))
    np.testing.assert_allclose(blocks, dense, rtol=1e-3)  # of scales in half precision


def test_parts_of_a_joined_weight_keep_its_order() -> None:
    parts, dense = make.gptq(np.random.default_rng(2), 32, 64, 32, spread=True)
    tensor = _read(parts, GPTQ | {"desc_act": True})
    part = tensor.rows("half", 8, 24).reordered(np.arange(16)[::-1])
    assert isinstance(part, GroupedTensor)
    held = part.by_group
    blocks = dequantize(Tensor("x", held.shape, held.scheme, held.data))
    np.testing.assert_array_equal(blocks, dense[8:24][::-1][:, part.order])
    np.testing.assert_array_equal(dequantize(part), dense[8:24][::-1])


def test_files_get_schemes_that_they_have() -> None:
    tensor = _read(_awq(), AWQ)
    filed = as_filed(tensor)
    assert filed.scheme.name == "Q5_0"
    blocks = dequantize(Tensor("x", filed.shape, filed.scheme, filed.data))
    np.testing.assert_array_equal(blocks, dequantize(tensor))


def test_halves_are_rounded_as_numpy_rounds_them() -> None:
    """The smallest, subnormal, tied and largest numbers."""
    parts, _ = make.fp8(np.random.default_rng(0), 64, 64)
    parts["weight"] = ("F8_E4M3", np.arange(4096).reshape(64, 64).astype(np.uint8) & 0x7E)
    for exponent in range(-30, 7):
        scales = np.ldexp(np.linspace(1, 2, 64), exponent).astype(np.float32)[:, None]
        tensor = _read(parts | {"weight_scale": ("F32", scales)}, {"quant_method": "fp8"})
        wanted = dequantize(tensor).astype(np.float16)
        halves = tensor.origin.blocks(SCHEMES["F16"]).view(np.float16)
        np.testing.assert_array_equal(halves, wanted.reshape(-1))


def _compressed(kind: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "config_groups": {"group_0": group},
    } | more


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.json")))
def test_what_compressed_tensors_itself_packs(name: str) -> None:
    file = open_safetensors(FIXTURES / f"{name}.safetensors")
    config = json.loads((FIXTURES / f"{name}.json").read_text())
    config["quant_method"] = "compressed-tensors"
    found = assemble(FIXTURES, {"quantization_config": config}, dict.fromkeys(file.entries, file))
    tensor = found["layer.weight"]
    assert tensor is not None
    expected = dequantize(file.tensor("expected", "expected"))
    rtol = 2**-8 if name == "nvfp4" else 1e-6  # the library gives that in bfloat16
    np.testing.assert_allclose(dequantize(tensor), expected, rtol=rtol)
    held = dequantize(Tensor("x", tensor.shape, tensor.scheme, tensor.data))
    np.testing.assert_allclose(held, expected, rtol=max(rtol, 1e-3))


def _awq() -> make.Parts:
    return make.awq(np.random.default_rng(1), 16, 64, 32)[0]


def _gptq(**kind: Any) -> make.Parts:
    return make.gptq(np.random.default_rng(1), 16, 64, 32, **kind)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quant_method": "quip"}, "'quant_method': got 'quip', expected one of awq, gptq"),
        ({"quant_method": None}, "'quant_method': got None"),
        ({"version": "gemv"}, "'version': got 'gemv', expected one of gemm"),
        ({"bits": 3}, "'bits': got 3, expected 4"),
        ({"bits": True}, "'bits': got True, expected a whole number"),
        ({"zero_point": False}, "'zero_point': got False"),
        ({"zero_point": 1}, "'zero_point': got 1, expected true or false"),
        ({"group_size": 0}, "'group_size': got 0"),
        ({"group_size": "32"}, "'group_size': got '32'"),
        ({"rotation": "hadamard", "alpha": 2}, "unknown fields: alpha, rotation"),
    ],
)
def test_a_config_with_what_is_not_known(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=r"config\.json: quantization_config") as caught:
        _read(_awq(), AWQ | change)
    assert message in str(caught.value)


def test_an_unknown_field_that_is_off() -> None:
    off = {"rotation": None, "alpha": False, "extras": {}, "notes": [], "name": ""}
    assert _read(_awq(), AWQ | off).scheme.name == "Q4_Z"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPTQ | {"dynamic": {"-:x": {}}}, "'dynamic'"),
        (GPTQ | {"checkpoint_format": "marlin"}, "'checkpoint_format': got 'marlin'"),
        (GPTQ | {"bits": 5}, "'bits': got 5, expected 2, 3, 4 or 8"),
        ({"quant_method": "fp8", "fmt": "e3m4"}, "'fmt': got 'e3m4'"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "'weight_block_size'"),
        ({"quant_method": "bitsandbytes"}, "one of load_in_4bit and load_in_8bit"),
        (_compressed("marlin-24", {}), "'format': got 'marlin-24'"),
        (_compressed("pack-quantized", {"num_bits": 1}), "'num_bits': got 1, expected 2 to 8"),
        (_compressed("pack-quantized", {"nuance": 1}), "weights: unknown fields: nuance"),
        (_compressed("pack-quantized", {}, quantization_status="calibration"), "'calibration'"),
        (_compressed("pack-quantized", {}, transform_config={"x": 1}), "'transform_config'"),
        (_compressed("pack-quantized", {}, ignore=["re:(a+)+b"]), "may take too long"),
        (_compressed("pack-quantized", {}, ignore=["re:(a"]), "is wrong"),
        (_compressed("pack-quantized", {}, config_groups=[]), "'config_groups'"),
    ],
)
def test_other_configs_with_what_is_not_known(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        _read(_gptq(), config)
    assert message in str(caught.value)


def _without(parts: make.Parts, name: str) -> make.Parts:
    return {key: value for key, value in parts.items() if key != name}


@pytest.mark.parametrize(
    ("parts", "config", "message"),
    [
        (_without(_awq(), "scales"), AWQ, "module 'layer' lacks '.scales'"),
        (_awq(), AWQ | {"group_size": 48}, "expected a multiple of 48"),
        (_awq(), AWQ | {"group_size": 64}, "'layer.qzeros': got shape [2, 2], expected [1, 2]"),
        (_awq() | {"scales": ("I32", np.zeros((2, 16), np.int32))}, AWQ, "got dtype I32"),
        (_awq() | {"weight": ("F32", np.zeros((16, 64), np.float32))}, AWQ, "stored twice"),
        (_awq() | {"qweight": ("I32", np.zeros((0, 2), np.int32))}, AWQ, "got shape [0, 2]"),
        (
            _gptq() | {"g_idx": ("I32", np.full(64, 2, np.int32))},
            GPTQ,
            "'layer.g_idx': got groups 2 to 2, expected 0 to 1",
        ),
        (
            _gptq() | {"g_idx": ("I32", np.zeros(63, np.int32))},
            GPTQ,
            "got shape [63], expected [64]",
        ),
    ],
)
def test_parts_that_do_not_fit(parts: make.Parts, config: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=r"layer") as caught:
        _read(parts, config)
    assert message in str(caught.value)


def test_zero_points_that_the_config_denies() -> None:
    tensor = _read(_gptq(symmetric=False), GPTQ)
    with pytest.raises(FormatError, match=r"module 'layer': integers less their zero points"):
        _ = tensor.data


def test_scales_beyond_half_precision() -> None:
    parts = _awq() | {"scales": ("F32", np.full((2, 16), 1e6, np.float32))}
    tensor = _read(parts, AWQ)
    assert np.isfinite(dequantize(tensor)).all()
    with pytest.raises(FormatError, match=r"module 'layer': scales"):
        _ = tensor.data
    with pytest.raises(FormatError, match="range of half precision"):
        _ = _read(*_wide()).data


def _wide() -> tuple[make.Parts, dict[str, Any]]:
    parts, _ = make.fp8(np.random.default_rng(0), 16, 33, scale="whole")
    return parts | {"weight_scale": ("F32", np.array([1e9], np.float32))}, {"quant_method": "fp8"}


def test_a_module_outside_of_all_targets() -> None:
    parts, _ = make.pack_quantized(np.random.default_rng(1), 16, 64, 32)
    weights = {"num_bits": 4, "strategy": "group", "group_size": 32}
    config = _compressed("pack-quantized", weights)
    config["config_groups"]["group_0"]["targets"] = ["re:other.*"]
    with pytest.raises(FormatError, match="no config group has module 'layer'"):
        _read(parts, config)
    config["config_groups"]["group_0"]["targets"] = ["re:lay.*r$"]
    assert _read(parts, config).scheme.name == "Q4_0"
    with pytest.raises(FormatError, match="'layer' is in 'ignore'"):
        _read(parts, config | {"ignore": ["layer"]})


def test_pages_of_the_parts_can_be_let_go(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    make.write_safetensors(path, {f"layer.{name}": part for name, part in _awq().items()})
    file = open_safetensors(path)
    found = assemble(path, {"quantization_config": AWQ}, dict.fromkeys(file.entries, file))
    tensor = found["layer.weight"]
    assert tensor is not None
    before = tensor.data
    checkpoint = Checkpoint(path, "safetensors", {}, {"x": tensor}, 0, maps=(file.map,))
    assert not checkpoint.is_mapped(tensor)
    checkpoint.release(tensor)
    np.testing.assert_array_equal(tensor.data, before)
    half = tensor.rows("half", 8, 16)
    np.testing.assert_array_equal(dequantize(half), dequantize(tensor)[8:])
    np.testing.assert_array_equal(half.data, before.reshape(16, -1)[8:].reshape(-1))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_BASES = (
    (AWQ, _awq()),
    (GPTQ, _gptq()),
    (
        _compressed("pack-quantized", {"num_bits": 4, "group_size": 32, "strategy": "group"}),
        make.pack_quantized(np.random.default_rng(1), 16, 64, 32, symmetric=False)[0],
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        make.bnb4(np.random.default_rng(1), 4, 64)[0],
    ),
    ({"quant_method": "fp8"}, make.fp8(np.random.default_rng(1), 4, 32)[0]),
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_an_error_or_harmless(data: st.DataObject) -> None:
    config, parts = data.draw(st.sampled_from(_BASES))
    config, parts = dict(config), dict(parts)
    if data.draw(st.booleans()):
        config[data.draw(st.sampled_from([*config, "group_size", "sym", "ignore"]))] = data.draw(
            _JSON
        )
    name = data.draw(st.sampled_from(list(parts)))
    dtype, array = parts[name]
    kind = data.draw(st.integers(0, 3))
    if kind == 0:
        del parts[name]
    elif kind == 1:
        parts[name] = (dtype, array[: data.draw(st.integers(0, 3))] if array.ndim else array)
    elif kind == 2:
        raw = data.draw(st.binary(min_size=array.nbytes, max_size=array.nbytes))
        parts[name] = (dtype, np.frombuffer(raw, array.dtype).reshape(array.shape))
    else:
        parts[name] = ("I64", np.zeros(array.shape, np.int64))
    with suppress(ModelError), np.errstate(all="ignore"):
        tensor = _read(parts, config)
        assert tensor.data.nbytes == tensor.num_bytes

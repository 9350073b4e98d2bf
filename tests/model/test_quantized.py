"""Quantized safetensors: each method on a tiny model, against the same weights in float32."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import run_tokens
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import dequantize, open_checkpoint
from octavo.weights.tensor import GroupedTensor
from tests.support import quantized as make

FAMILIES = Path(__file__).parent.parent / "fixtures" / "families"
BASE = FAMILIES / "llama-yarn"
WIDER = FAMILIES.parent.parent / "golden" / "tiny" / "llama"
BASES = dict.fromkeys(("gptq-3", "gptq-act-order-3"), FAMILIES / "gemma")
BASES |= dict.fromkeys(("gptq-act-order-32", "ct-int4-act-order-32"), WIDER)
"""Three bits of every output must fill whole words, which 16 outputs do not."""
OTHERS = [
    *(("qwen3-moe", "ct-w8a8"), ("granite-moe", "fp8"), ("gpt-neox", "fp8"), ("glm4", "awq")),
    ("phi3-longrope", "ct-int4-act-order-32"),
]
"""Experts, joined and reordered rows."""
TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 96, 40)]


def _compressed(fmt: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": fmt,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def _int(bits: int, strategy: str = "group", group: int = 32, **more: Any) -> dict[str, Any]:
    sizes = {"group_size": group} if strategy == "group" else {}
    return {
        "num_bits": bits,
        "type": "int",
        "symmetric": True,
        "strategy": strategy,
        **sizes,
        **more,
    }


def _gptq(bits: int = 4, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": False} | more


BNB4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
PACK, FLOAT = "pack-quantized", {"num_bits": 8, "type": "float", "symmetric": True}

METHODS: dict[str, tuple[dict[str, Any], Callable[..., make.Packed], str]] = {
    "awq": (AWQ, partial(make.awq, group=32), "Q4_Z"),
    "gptq": (_gptq(), partial(make.gptq, group=32), "Q4_0"),
    "gptq-zeros": (
        _gptq(sym=False),
        partial(make.gptq, group=32, symmetric=False),
        "Q4_Z",
    ),
    "gptq-v2": (
        _gptq(sym=False, checkpoint_format="gptq_v2"),
        partial(make.gptq, group=32, symmetric=False, second=True),
        "Q4_Z",
    ),
    "gptq-act-order": (
        _gptq(desc_act=True, group_size=16),
        partial(make.gptq, group=16, spread=True),
        "F16",
    ),
    "gptq-act-order-32": (
        _gptq(desc_act=True, sym=False),
        partial(make.gptq, group=32, spread=True, symmetric=False),
        "Q4_Z",
    ),
    "gptq-act-order-3": (
        _gptq(3, desc_act=True),
        partial(make.gptq, group=32, bits=3, spread=True),
        "Q4_0",
    ),
    "gptq-8": (_gptq(8), partial(make.gptq, group=32, bits=8), "Q8_0"),
    "gptq-8-zeros": (
        _gptq(8, sym=False),
        partial(make.gptq, group=32, bits=8, symmetric=False),
        "Q8_Z",
    ),
    "gptq-3": (_gptq(3, sym=False), partial(make.gptq, group=32, bits=3, symmetric=False), "Q4_0"),
    "gptq-2": (_gptq(2, sym=False), partial(make.gptq, group=32, bits=2, symmetric=False), "Q4_0"),
    "ct-int4": (_compressed(PACK, **_int(4)), partial(make.pack_quantized, group=32), "Q4_0"),
    "ct-int4-zeros": (
        _compressed(PACK, **_int(4, symmetric=False)),
        partial(make.pack_quantized, group=32, symmetric=False),
        "Q4_Z",
    ),
    "ct-int4-act-order": (
        _compressed(PACK, **_int(4, group=16, actorder="group")),
        partial(make.pack_quantized, group=16, spread=True),
        "F16",
    ),
    "ct-int4-act-order-32": (
        _compressed(PACK, **_int(4, actorder="group")),
        partial(make.pack_quantized, group=32, spread=True, alike=True),
        "Q4_0",
    ),
    "ct-int8": (
        _compressed(PACK, **_int(8)),
        partial(make.pack_quantized, group=32, bits=8),
        "Q8_0",
    ),
    "ct-w8a8": (_compressed("int-quantized", **_int(8, "channel")), make.int_quantized, "Q8_0"),
    "ct-w8a8-zeros": (
        _compressed("int-quantized", **_int(8, "channel", symmetric=False)),
        partial(make.int_quantized, symmetric=False),
        "Q8_Z",
    ),
    "ct-fp8": (_compressed("float-quantized", **FLOAT, strategy="channel"), make.fp8, "E4M3"),
    "ct-mxfp4": (
        _compressed(
            "mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32
        ),
        make.mxfp4,
        "MXFP4",
    ),
    "ct-nvfp4": (
        _compressed(
            "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16
        ),
        make.nvfp4,
        "NVFP4_D",
    ),
    "fp8-block": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [24, 24]},
        partial(make.fp8, scale="block", block=24),
        "F16",
    ),
    "fp8-block-128": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
        partial(make.fp8, scale="block", block=128),
        "E4M3",
    ),
    "fp8-block-32": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]},
        partial(make.fp8, scale="block", block=32),
        "E4M3_32",
    ),
    "fp8-e5m2": (
        {"quant_method": "fp8", "fmt": "e5m2"},
        partial(make.fp8, kind="e5m2"),
        "E5M2",
    ),
    "fp8": ({"quant_method": "fp8"}, partial(make.fp8, scale="whole"), "E4M3"),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, make.fp8, "E4M3"),
    "nf4": (BNB4, partial(make.bnb4, nested=False), "NF4"),
    "nf4-double": (BNB4, make.bnb4, "NF4"),
    "fp4": (BNB4 | {"bnb_4bit_quant_type": "fp4"}, partial(make.bnb4, kind="fp4"), "FP4"),
    "fp4-other-values": (BNB4, partial(make.bnb4, kind="e2m1"), "F16"),
    "bnb-int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, make.bnb8, "Q8_0"),
}


def _open(folder: Path, backend: str, weights: str) -> Executable:
    checkpoint = open_checkpoint(folder)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(weights, kv_dtype="f32", products="int8", max_tokens=64, max_seqs=64)
    return get_backend(backend).compile(graph, checkpoint, config, options)


@pytest.mark.parametrize("method", METHODS)
def test_weights_and_logits(method: str, tmp_path: Path) -> None:
    settings, pack, scheme = METHODS[method]
    quantized, dense = make.write_pair(BASES.get(method, BASE), tmp_path, settings, pack)
    checkpoint, wanted = open_checkpoint(quantized), open_checkpoint(dense)
    assert checkpoint.tensors.keys() == wanted.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(dequantize(tensor), dequantize(wanted.tensors[name]))
    tensor = checkpoint.tensors["blk.0.ffn_down.weight"]
    held = tensor.by_group if isinstance(tensor, GroupedTensor) else tensor
    assert held.scheme.name == scheme
    expected = run_tokens(_open(dense, "reference", "float"), TOKENS, 40)
    logits = run_tokens(_open(quantized, "reference", "native"), TOKENS, 7)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    as_float = run_tokens(_open(quantized, "cpu", "float"), TOKENS, 40)
    # The values of bitsandbytes' codes are rounded, see docs/quantized.md.
    atol = 1e-1 if scheme in ("NF4", "FP4") else 2e-2
    np.testing.assert_allclose(as_float, expected, rtol=0, atol=atol)
    native = _open(quantized, "cpu", "native")
    whole = run_tokens(native, TOKENS, 40)
    np.testing.assert_array_equal(run_tokens(native, TOKENS, 13), whole)
    # Activations are int8. The random scales of nvfp4 span 17 powers of two: few weights count.
    share = 0.08 if method == "ct-nvfp4" else 0.05
    assert np.std(whole - expected) < share * np.std(expected)


@pytest.mark.parametrize(("family", "method"), OTHERS)
def test_other_families(family: str, method: str, tmp_path: Path) -> None:
    quantized, dense = make.write_pair(FAMILIES / family, tmp_path, *METHODS[method][:2])
    expected = run_tokens(_open(dense, "reference", "float"), TOKENS, 40)
    exact = run_tokens(_open(quantized, "reference", "native"), TOKENS, 40)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-4)
    native = run_tokens(_open(quantized, "cpu", "native"), TOKENS, 40)
    assert np.std(native - expected) < 0.05 * np.std(expected)


def _expert_orders(same: bool) -> Callable[[str], dict[str, Any] | None]:
    """Each expert in an order of its own, gate (w1) and up (w3) in the same one or not; the third
    in that of the file. The router has too few rows."""

    def of(module: str) -> dict[str, Any] | None:
        found = re.search(r"experts\.(\d+)\.w(\d)$", module)
        if found is None:
            return None if module.endswith("moe.gate") else {"spread": True}
        expert, matrix = int(found[1]), int(found[2])
        return {"spread": expert != 2, "alike": 1 + expert + 4 * (matrix == 3 and not same)}

    return of


@pytest.mark.parametrize("same", [True, False])
def test_experts_in_the_order_of_activations(same: bool, tmp_path: Path) -> None:
    base = WIDER.parent / "mixtral"
    settings, pack, _ = METHODS["gptq-act-order-32"]
    quantized, dense = make.write_pair(base, tmp_path / "a", settings, pack, _expert_orders(same))
    natural, _ = make.write_pair(
        *(base, tmp_path / "b", settings, partial(pack, spread=False)),
        lambda module: None if module.endswith("moe.gate") else {},
    )
    expected = run_tokens(_open(dense, "reference", "float"), TOKENS, 40)
    exact = run_tokens(_open(quantized, "reference", "native"), TOKENS, 40)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-4)
    as_float = run_tokens(_open(quantized, "cpu", "float"), TOKENS, 40)
    np.testing.assert_allclose(as_float, expected, rtol=0, atol=4e-2)  # of halves
    native = _open(quantized, "cpu", "native")
    whole = run_tokens(native, TOKENS, 40)
    np.testing.assert_array_equal(run_tokens(native, TOKENS, 13), whole)
    # Of a token that int8 rows send to another expert much is different.
    assert np.median(np.std(whole - expected, axis=1)) < 0.1 * np.std(expected)
    plan, wanted = native.plan, _open(natural, "cpu", "native").plan
    more = plan.weight_bytes - wanted.weight_bytes
    layers, experts, features, hidden = 3, 4, 64, 128
    if same:  # four bits, and the orders in which gate and up read
        assert more == layers * experts * features * 4
        assert plan.notes == ()
    else:
        # Of 64 columns, in whole lines of memory, Q4_Z has five bits.
        assert more == layers * experts * 2 * features * hidden * (16 - 5) / 8
        (note,) = plan.notes
        assert note.startswith("24 matrices of experts are kept as F16: gate and up")


def test_the_note_says_what_it_costs(tmp_path: Path) -> None:
    folder, _ = make.write_pair(BASE, tmp_path, *METHODS["awq"][:2])
    (note,) = open_checkpoint(folder).notes
    assert note.startswith("quantized weights: 14 as Q4_Z; 0.0 MB")

"""BitNet's packed ternary weights: the numbers, the blocks they are kept in, a whole model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf as gguf_py
import numpy as np
import pytest
import safetensors.numpy

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import run_tokens
from octavo.convert import convert
from octavo.errors import FormatError, ModelError, UnsupportedError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import dequantize, open_checkpoint
from octavo.weights.quantized.bitnet import ternary_blocks

FIXTURE = Path(__file__).parent.parent / "fixtures" / "families" / "bitnet"
AUTO = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
FIRST = {"quant_method": "bitnet", "linear_class": "bitlinear"}


def packed(q: np.ndarray) -> np.ndarray:
    """Four runs of rows in a byte, the first in the lowest bits."""
    runs = (q + 1).astype(np.uint8).reshape(4, -1, q.shape[1])
    return runs[0] | runs[1] << 2 | runs[2] << 4 | runs[3] << 6


def write(folder: Path, settings: dict[str, Any], scale: float) -> tuple[Path, Path]:
    """The fixture with ternary weights: packed, and the same numbers as floats."""
    stored = safetensors.numpy.load_file(FIXTURE / "model.safetensors")
    rng = np.random.default_rng(5)
    quantized, plain = dict(stored), dict(stored)
    for name, weight in stored.items():
        if "_proj" in name:
            q = rng.integers(-1, 2, weight.shape).astype(np.int8)
            quantized[name] = packed(q)
            quantized[f"{name}_scale"] = np.array([scale], np.float32)
            by = 1 / scale if settings["linear_class"] == "bitlinear" else scale
            plain[name] = q.astype(np.float32) * np.float32(by)
    config = json.loads((FIXTURE / "config.json").read_text())
    made = []
    for kind, tensors, more in (
        ("packed", quantized, {"quantization_config": settings}),
        ("plain", plain, {}),
    ):
        shutil.copytree(FIXTURE, folder / kind)
        safetensors.numpy.save_file(tensors, folder / kind / "model.safetensors")
        (folder / kind / "config.json").write_text(json.dumps(config | more))
        made.append(folder / kind)
    return made[0], made[1]


def logits(path: Path, backend: str) -> np.ndarray:
    checkpoint = open_checkpoint(path)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(max_tokens=32, max_seqs=32)
    executable = get_backend(backend).compile(graph, checkpoint, config, options)
    return run_tokens(executable, list(range(3, 23)), 32)


@pytest.mark.parametrize("settings", [AUTO, FIRST], ids=["auto", "first"])
def test_packed_is_the_same_model(settings: dict[str, Any], tmp_path: Path) -> None:
    quantized, plain = write(tmp_path, settings, 0.25 if settings is AUTO else 4.0)
    for name, tensor in open_checkpoint(plain).tensors.items():
        got = open_checkpoint(quantized).tensors[name]
        np.testing.assert_array_equal(dequantize(got), dequantize(tensor))
    wanted = logits(plain, "reference")
    np.testing.assert_array_equal(logits(quantized, "reference"), wanted)
    np.testing.assert_allclose(logits(quantized, "cpu"), wanted, rtol=0, atol=0.25)


def test_packed_becomes_gguf(tmp_path: Path) -> None:
    quantized, _ = write(tmp_path, AUTO, 0.25)
    path = convert(quantized, tmp_path / "m.gguf")
    assert open_checkpoint(path).metadata["general.architecture"] == "bitnet-b1.58"
    np.testing.assert_array_equal(logits(path, "reference"), logits(quantized, "reference"))


def test_the_first_architecture_has_silu(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "silu"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "silu"}))
    path = convert(folder, tmp_path / "m.gguf")
    assert open_checkpoint(path).metadata["general.architecture"] == "bitnet"
    back = convert(path, tmp_path / "back")
    assert json.loads((back / "config.json").read_text())["hidden_act"] == "silu"


def test_blocks_are_what_gguf_py_reads() -> None:
    q = np.random.default_rng(1).integers(-1, 2, (6, 512)).astype(np.int8)
    blocks = ternary_blocks(q, np.float16(0.3))
    values = gguf_py.dequantize(blocks.reshape(6, -1), gguf_py.GGMLQuantizationType.TQ2_0)
    np.testing.assert_array_equal(values, q * np.float32(np.float16(0.3)))


DAMAGE = {
    "a code": ("weight", np.full((8, 32), 0xFF, np.uint8), "holds 3"),
    "dtype": ("weight", np.zeros((8, 32), np.int32), "I32"),
    "two scales": ("weight_scale", np.ones(2, np.float32), "one number"),
    "no scale": ("weight_scale", np.zeros(1, np.float32), "other than 0"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(kind: str, tmp_path: Path) -> None:
    part, array, message = DAMAGE[kind]
    quantized, _ = write(tmp_path, AUTO, 0.25)
    stored = dict(safetensors.numpy.load_file(quantized / "model.safetensors"))
    name = f"model.layers.1.self_attn.q_proj.{part}"
    safetensors.numpy.save_file(stored | {name: array}, quantized / "model.safetensors")
    with pytest.raises(FormatError, match=message) as caught:
        dequantize(open_checkpoint(quantized).tensors["blk.1.attn_q.weight"])
    assert name in str(caught.value)


def test_weights_that_are_still_to_be_rounded(tmp_path: Path) -> None:
    quantized, _ = write(tmp_path, AUTO | {"quantization_mode": "online"}, 0.25)
    with pytest.raises(UnsupportedError, match="'quantization_mode': got 'online'"):
        open_checkpoint(quantized)
    quantized, _ = write(tmp_path / "other", AUTO | {"use_rms_norm": True}, 0.25)
    with pytest.raises(ModelError, match="unknown fields: use_rms_norm"):
        open_checkpoint(quantized)

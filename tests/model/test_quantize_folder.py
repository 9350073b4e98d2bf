"""Quantized folders: compressed-tensors that Octavo's own reader takes, number for number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import InvalidParameterError, UnsupportedError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.quantize import Options, quantize
from octavo.quantize.folder import e4m3_bytes
from octavo.quantize.source import SourceModel
from octavo.weights import dequantize, open_checkpoint
from octavo.weights.folder import read_json
from octavo.weights.quantized.bits import E4M3

TINY = Path(__file__).parent.parent / "golden" / "tiny"
BODY = ("attn_q.weight", "attn_output.weight", "ffn_down.weight")


def numbers(path: Path) -> dict[str, np.ndarray]:
    """Tensors by GGUF's conventions, so that a folder and a file compare."""
    source = SourceModel(path)
    return {name: dequantize(t) for name, t in source.fitted.tensors.items()}


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "phi3"])
def test_a_folder_holds_the_blocks_of_the_file(family: str, tmp_path: Path):
    folder = quantize(TINY / family, tmp_path / "m", Options("int4-g32", "rtn")).path
    quantize(TINY / family, tmp_path / "m.gguf", Options("q4_0", "rtn"))
    file = open_checkpoint(tmp_path / "m.gguf")
    for name, values in numbers(folder).items():
        if name.endswith(BODY) and name in file.tensors:
            np.testing.assert_array_equal(values, dequantize(file.tensors[name]))
    config = config_from(open_checkpoint(folder))
    fitted = fit_tensors(config, open_checkpoint(folder))
    build_graph(config, fitted.tensors)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m.gguf"]


@pytest.mark.parametrize(("scheme", "error"), [("int8", 0.006), ("fp8", 0.03)])
def test_eight_bits(scheme: str, error: float, tmp_path: Path):
    folder = quantize(TINY / "llama", tmp_path / "m", Options(scheme, "rtn")).path
    before, after = numbers(TINY / "llama"), numbers(folder)
    for name in before:
        off = np.sqrt(np.mean((after[name] - before[name]) ** 2))
        assert off <= error * np.sqrt(np.mean(before[name] ** 2)), name
    assert open_checkpoint(folder).tensors["token_embd.weight"].scheme.name == "F16"


def test_groups_of_128(tmp_path: Path):
    folder = quantize(TINY / "llama", tmp_path / "m", Options("int4-g128", "rtn")).path
    config = read_json(folder / "config.json")["quantization_config"]
    assert config["config_groups"]["group_0"]["weights"]["group_size"] == 128
    # Rows of 64 stay in 16 bits and are named; rows of 128 are packed.
    assert "model.layers.0.self_attn.q_proj" in config["ignore"]
    assert "model.layers.0.mlp.down_proj" not in config["ignore"]
    values, before = numbers(folder), numbers(TINY / "llama")
    name = "blk.0.ffn_down.weight"
    steps = [len(np.unique(row)) for row in values[name]]
    assert max(steps) <= 16
    assert np.corrcoef(values[name].ravel(), before[name].ravel())[0, 1] > 0.98


def test_a_file_can_have_groups_of_128_too(tmp_path: Path):
    quantize(TINY / "llama", tmp_path / "m.gguf", Options("int4-g128", "rtn"))
    tensor = open_checkpoint(tmp_path / "m.gguf").tensors["blk.0.ffn_down.weight"]
    assert tensor.scheme.name == "Q4_0"
    scales = tensor.data.reshape(tensor.shape[0], -1, 18)[:, :, :2]
    assert (scales == scales[:, :1]).all()


def test_e4m3_is_the_nearest():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(4000) * np.exp2(rng.integers(-12, 8, 4000))).astype(np.float32)
    x = np.clip(x, -448, 448)
    table = E4M3[np.isfinite(E4M3)]
    got = E4M3[e4m3_bytes(x)]
    best = np.abs(table[None, :] - x[:, None]).min(axis=1)
    np.testing.assert_array_equal(np.abs(got - x), best)


def test_what_a_folder_cannot_be(tmp_path: Path):
    with pytest.raises(InvalidParameterError, match=r"ending in \.gguf"):
        quantize(TINY / "llama", tmp_path / "m", Options("q4_k", "rtn"))
    with pytest.raises(InvalidParameterError, match="into a folder"):
        quantize(TINY / "llama", tmp_path / "m.gguf", Options("fp8", "rtn"))
    with pytest.raises(InvalidParameterError, match="fp8"):
        quantize(TINY / "llama", tmp_path / "m", Options("fp8", "gptq"))
    with pytest.raises(UnsupportedError, match="compressed-tensors"):
        quantize(TINY / "gpt2", tmp_path / "m", Options("int8", "rtn"))
    assert not list(tmp_path.iterdir())

"""gpt-oss as it is published: experts in MXFP4, in Hugging Face's layout and in GGUF's blocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import run_tokens
from octavo.models import build_graph, config_from, fit_tensors
from octavo.records import replace
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize, open_checkpoint
from octavo.weights.tensor import StackedTensor
from tests.support.quantized import Parts, write_safetensors

BASE = Path(__file__).parents[1] / "golden" / "tiny" / "gpt-oss"
TOKENS = list(range(20, 60))
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def packed(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Parts, np.ndarray]:
    """(blocks and scales, the numbers [E, N, K])."""
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 32, 16), dtype=np.uint8)
    scales = rng.integers(118, 124, blocks.shape[:-1], dtype=np.uint8)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    signs = np.where(codes & 8, -1, 1).astype(np.float32)
    values = signs * E2M1[codes & 7] * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return {"blocks": ("U8", blocks), "scales": ("U8", scales)}, values.reshape(shape)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The golden model with random MXFP4 experts, and the same with their numbers as floats."""
    rng = np.random.default_rng(3)
    quantized: Parts = {}
    dense: Parts = {}
    for name, array in safetensors.numpy.load_file(BASE / "model.safetensors").items():
        if array.ndim == 3:
            parts, values = packed(rng, (array.shape[0], array.shape[2], array.shape[1]))
            quantized |= {f"{name}_{ending}": part for ending, part in parts.items()}
            dense[name] = ("F32", np.ascontiguousarray(values.swapaxes(1, 2)))
        else:
            quantized[name] = dense[name] = ("F32", array)
    config = json.loads((BASE / "config.json").read_text())
    made = tmp_path_factory.mktemp("gpt-oss")
    extra = {"quantization_config": {"quant_method": "mxfp4"}}
    for kind, tensors in (("quantized", quantized), ("dense", dense)):
        (made / kind).mkdir()
        write_safetensors(made / kind / "model.safetensors", tensors)
        own = config | (extra if kind == "quantized" else {})
        (made / kind / "config.json").write_text(json.dumps(own))
    return made / "quantized", made / "dense"


def fitted(folder: Path) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    return fit_tensors(config_from(checkpoint), checkpoint)


def compiled(checkpoint: Checkpoint, backend: str, weights: str) -> Executable:
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(weights=weights, kv_dtype="f32", max_tokens=64, max_seqs=64)
    return get_backend(backend).compile(graph, checkpoint, config, options)


def test_experts_are_kept_exactly(folders: tuple[Path, Path]) -> None:
    quantized, dense = (fitted(folder).tensors for folder in folders)
    assert quantized.keys() == dense.keys()
    for name, tensor in quantized.items():
        np.testing.assert_array_equal(dequantize(tensor), dequantize(dense[name]))
        if name.endswith("_exps.weight"):
            assert tensor.scheme is SCHEMES["MXFP4"]
            for part, wanted in zip(tensor.slices(), dequantize(dense[name]), strict=True):
                stored = Tensor(part.name, part.shape, part.scheme, part.data)
                np.testing.assert_array_equal(dequantize(stored), wanted)


def test_logits(folders: tuple[Path, Path]) -> None:
    quantized, dense = (fitted(folder) for folder in folders)
    expected = run_tokens(compiled(dense, "reference", "native"), TOKENS, 40)
    got = run_tokens(compiled(quantized, "reference", "native"), TOKENS, 7)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)
    as_float = run_tokens(compiled(quantized, "cpu", "float"), TOKENS, 40)
    np.testing.assert_allclose(as_float, expected, rtol=0, atol=2e-2)
    native = compiled(quantized, "cpu", "native")
    whole = run_tokens(native, TOKENS, 40)
    for chunk in (13, 1):
        np.testing.assert_array_equal(run_tokens(native, TOKENS, chunk), whole)
    assert np.std(whole - expected) < 0.05 * np.std(expected)  # activations are int8


def test_ggufs_stacked_blocks_give_the_same_bits(folders: tuple[Path, Path]) -> None:
    apart = fitted(folders[0])
    tensors = {
        name: Tensor(name, tensor.shape, tensor.scheme, tensor.data)
        if isinstance(tensor, StackedTensor)
        else tensor
        for name, tensor in apart.tensors.items()
    }
    stacked = replace(apart, tensors=tensors)
    got, wanted = (compiled(checkpoint, "cpu", "native") for checkpoint in (stacked, apart))
    np.testing.assert_array_equal(run_tokens(got, TOKENS, 40), run_tokens(wanted, TOKENS, 40))

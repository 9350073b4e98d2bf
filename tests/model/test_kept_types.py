"""A whole model of types that are computed with in another form, or by codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import random_tensor, run_tokens
from octavo.models import build_graph, config_from
from octavo.records import replace
from octavo.weights import SCHEMES, Checkpoint, Tensor, dequantize, open_checkpoint
from octavo.weights.tensor import float32_tensor

GOLDEN = Path(__file__).parents[1] / "golden" / "tiny" / "llama"
TOKENS = [5, 17, 301, 2, 2, 77, 9, 130, 64, 250, 31]
TYPES = {
    "blk.0.attn_q.weight": "IQ4_NL",
    "blk.0.attn_v.weight": "MXFP4",
    "blk.0.ffn_gate.weight": "NVFP4",
    "blk.0.ffn_up.weight": "NVFP4",
    "blk.0.ffn_down.weight": "Q1_0",
    "output_norm.weight": "F64",
}


def _checkpoint() -> Checkpoint:
    checkpoint = open_checkpoint(GOLDEN)
    tensors = dict(checkpoint.tensors)
    for seed, (name, scheme) in enumerate(TYPES.items()):
        tensors[name] = _stored(name, tensors[name], scheme, seed)
    return replace(checkpoint, tensors=tensors)


def _stored(name: str, tensor: Tensor, scheme: str, seed: int) -> Tensor:
    if scheme == "F64":
        data = dequantize(tensor).astype(np.float64).view(np.uint8)
        return Tensor(name, tensor.shape, SCHEMES["F64"], data)
    stored = random_tensor(name, scheme, tensor.shape, seed)
    if scheme == "NVFP4":  # scales of a size that weights have
        stored.data.reshape(-1, 36)[:, :4] &= 0x1F
    return stored


def _logits(checkpoint: Checkpoint, backend: str, weights: str) -> np.ndarray:
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(weights=weights, max_tokens=16, max_seqs=16)
    executable = get_backend(backend).compile(graph, checkpoint, config, options)
    return run_tokens(executable, TOKENS, len(TOKENS))


def test_products_of_every_form_come_near_the_reference() -> None:
    checkpoint = _checkpoint()
    expected = _logits(checkpoint, "reference", "native")
    size = np.sqrt(np.mean(np.square(expected)))
    assert np.abs(_logits(checkpoint, "cpu", "float") - expected).max() < 2e-4 * size
    assert np.abs(_logits(checkpoint, "cpu", "native") - expected).max() < 0.15 * size


def test_the_numbers_are_those_of_float32() -> None:
    checkpoint = _checkpoint()
    floats = {name: float32_tensor(name, dequantize(checkpoint.tensors[name])) for name in TYPES}
    plain = replace(checkpoint, tensors={**checkpoint.tensors, **floats})
    expected = _logits(plain, "reference", "native")
    np.testing.assert_array_equal(_logits(checkpoint, "reference", "native"), expected)


def test_the_plan_says_what_another_form_costs() -> None:
    checkpoint = _checkpoint()
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(max_tokens=16, max_seqs=16)
    plan = get_backend("cpu").plan(graph, checkpoint, config, options)
    assert plan.notes == ("type Q1_0 is kept as Q4_0: 0.0 MB more",)
    as_float = get_backend("cpu").plan(graph, checkpoint, config, replace(options, weights="float"))
    assert as_float.notes == ()

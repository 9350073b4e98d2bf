"""The demo models' files as gguf-py reads them."""

from __future__ import annotations

import time

import gguf
import numpy as np
import pytest

from octavo.weights import dequantize, inspect_model, open_checkpoint, resolve

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def reader() -> gguf.GGUFReader:
    """gguf-py's view of smollm2; it takes seconds."""
    return gguf.GGUFReader(resolve("smollm2"))


def test_every_tensor_is_where_gguf_py_finds_it(reader: gguf.GGUFReader) -> None:
    checkpoint = open_checkpoint(resolve("smollm2"))
    assert list(checkpoint.tensors) == [tensor.name for tensor in reader.tensors]
    for theirs in reader.tensors:
        ours = checkpoint.tensors[theirs.name]
        assert ours.scheme.name == theirs.tensor_type.name
        assert ours.shape == tuple(int(size) for size in reversed(theirs.shape))
        assert np.array_equal(ours.data, theirs.data.reshape(-1).view(np.uint8))


def test_metadata_is_what_gguf_py_reads(reader: gguf.GGUFReader) -> None:
    checkpoint = open_checkpoint(resolve("smollm2"))
    theirs = {key: item for key, item in reader.fields.items() if not key.startswith("GGUF.")}
    assert set(checkpoint.metadata) == set(theirs)
    for key, item in theirs.items():
        ours, expected = checkpoint.metadata[key], item.contents()
        assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == expected


@pytest.mark.parametrize(
    ("model", "schemes"),
    [
        ("smollm2", {"Q4_1", "Q8_0", "F32"}),
        ("gemma3-270m", {"Q5_0", "Q8_0", "Q4_K", "Q6_K", "F32"}),
        ("qwen2.5-coder-1.5b", {"Q4_K", "Q6_K", "F32"}),
    ],
)
def test_a_demo_model_dequantizes_as_gguf_py_does(model: str, schemes: set[str]) -> None:
    checkpoint = open_checkpoint(resolve(model))
    assert {use.scheme.name for use in inspect_model(checkpoint).by_scheme} == schemes
    for name in schemes:
        stored = (t for t in checkpoint.tensors.values() if t.scheme.name == name)
        tensor = min(stored, key=lambda t: t.size)
        rows = tensor.data.view(np.float32) if name == "F32" else tensor.data
        kind = gguf.GGMLQuantizationType[name]
        expected = gguf.dequantize(rows.reshape(*tensor.shape[:-1], -1), kind)
        assert np.array_equal(dequantize(tensor), expected)


def test_a_large_vocabulary_opens_fast() -> None:
    path = resolve("gemma3-270m")
    open_checkpoint(path).metadata["tokenizer.ggml.tokens"]  # the file comes into the page cache
    start = time.process_time()
    metadata = open_checkpoint(path).metadata
    assert len(metadata["tokenizer.ggml.tokens"]) == 262_144
    assert metadata["tokenizer.ggml.scores"].dtype == np.float32
    assert time.process_time() - start < 0.15

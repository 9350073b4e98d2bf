"""Reading well-formed GGUF files."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import FormatError, ModelNotFoundError, UnsupportedError
from octavo.weights import Checkpoint, dequantize, inspect_model, open_checkpoint
from tests.support.gguf_file import ARRAY, STR, U32, Array, TensorSpec, sample_gguf, write_gguf


def _open(folder: Path, data: bytes | bytearray) -> Checkpoint:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return open_checkpoint(path)


def test_every_value_type_comes_as_a_plain_value(tmp_path: Path) -> None:
    metadata = _open(tmp_path, sample_gguf().data).metadata
    assert metadata["general.architecture"] == "llama"
    scalars = [metadata[f"test.{name}"] for name in ("u8", "i8", "u16", "i16", "i32", "u64", "i64")]
    assert scalars == [200, -5, 60000, -600, -70000, 2**63, -(2**62)]
    assert metadata["test.f32"] == 0.5
    assert metadata["test.f64"] == 1e300
    assert metadata["test.bool"] is True
    assert len(metadata) == 17
    assert metadata.get("absent") is None


def test_arrays_are_numpy_arrays_and_lists_of_strings(tmp_path: Path) -> None:
    metadata = _open(tmp_path, sample_gguf().data).metadata
    assert metadata["test.floats"].dtype == np.float32
    assert metadata["test.floats"].tolist() == [1.0, -2.5, 3.0]
    assert metadata["test.ints"].dtype == np.int32
    assert metadata["test.bools"].tolist() == [True, False]
    assert metadata["test.empty"] == []


def test_broken_utf8_survives_in_tokens(tmp_path: Path) -> None:
    tokens = _open(tmp_path, sample_gguf().data).metadata["tokenizer.ggml.tokens"]
    assert tokens[:2] == ["a", "é"]
    assert tokens[2].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert tokens[3] == ""


def test_broken_utf8_in_prose_can_be_printed(tmp_path: Path) -> None:
    image = write_gguf({"general.name": (STR, b"caf\xe9")}, [])
    assert _open(tmp_path, image.data).metadata["general.name"] == "caf\ufffd"


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(tmp_path: Path, version: int) -> None:
    image = write_gguf({}, [TensorSpec("a", (2, 3))], version=version)
    assert _open(tmp_path, image.data).tensors["a"].shape == (3, 2)


def test_tensors_are_read_only_views_with_the_outermost_size_first(tmp_path: Path) -> None:
    checkpoint = _open(tmp_path, sample_gguf().data)
    tensor = checkpoint.tensors["token_embd.weight"]
    assert tensor.shape == (4, 32)
    assert tensor.scheme.name == "Q8_0"
    assert tensor.data.nbytes == tensor.scheme.num_bytes(tensor.shape) == 4 * 34
    assert tensor.size == 128
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1


def test_a_view_keeps_the_map_alive(tmp_path: Path) -> None:
    data = np.arange(1024, dtype=np.float32)
    image = write_gguf({}, [TensorSpec("a", (1024,), data=data.tobytes())])
    tensor = _open(tmp_path, image.data).tensors["a"]
    gc.collect()
    assert np.array_equal(dequantize(tensor), data)


def test_released_pages_leave_memory_and_can_be_read_again(tmp_path: Path) -> None:
    data = np.random.default_rng(0).standard_normal(4 << 20).astype(np.float32)
    image = write_gguf({}, [TensorSpec("a", (data.size,), data=data.tobytes())])
    checkpoint = _open(tmp_path, image.data)
    tensor = checkpoint.tensors["a"]
    assert np.array_equal(dequantize(tensor), data)
    before = _resident_bytes()
    checkpoint.release(tensor)
    assert before - _resident_bytes() > 0.9 * data.nbytes
    assert np.array_equal(dequantize(tensor), data)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_release_leaves_memory_alone_that_is_not_a_map(tmp_path: Path) -> None:
    checkpoint = _open(tmp_path, sample_gguf().data)
    tensor = checkpoint.tensors["token_embd.weight"]
    data = np.full(1 << 16, 7, np.uint8)
    checkpoint.release(type(tensor)("x", (1 << 16,), tensor.scheme, data))
    assert (data == 7).all()


def test_a_file_with_a_vocabulary_alone_opens(tmp_path: Path) -> None:
    tokens = ["a", "b", "c"]
    image = write_gguf({"tokenizer.ggml.tokens": (ARRAY, Array(STR, tokens))}, [])
    checkpoint = _open(tmp_path, image.data)
    assert checkpoint.tensors == {}
    assert inspect_model(checkpoint).vocab_size == 3


def test_a_vocabulary_of_262144_tokens_opens_fast(tmp_path: Path) -> None:
    tokens = [f"token{i}" for i in range(262_144)]
    image = write_gguf({"tokenizer.ggml.tokens": (ARRAY, Array(STR, tokens))}, [])
    path = tmp_path / "model.gguf"
    path.write_bytes(image.data)
    start = time.process_time()
    checkpoint = open_checkpoint(path)
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == tokens
    assert time.process_time() - start < 0.15  # takes about 0.03


def test_a_type_of_activations_is_refused_when_wanted(tmp_path: Path) -> None:
    image = write_gguf({}, [TensorSpec("blk.0.ffn_up.weight", (256,), "Q8_1")])
    checkpoint = _open(tmp_path, image.data)
    assert inspect_model(checkpoint).unsupported == ("Q8_1",)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.ffn_up\.weight.*Q8_1"):
        dequantize(checkpoint.tensors["blk.0.ffn_up.weight"])


def test_alignment_of_the_file_is_followed(tmp_path: Path) -> None:
    data = np.arange(4, dtype=np.float32)
    tensors = [TensorSpec("a", (1,)), TensorSpec("b", (4,), data=data.tobytes())]
    image = write_gguf({"general.alignment": (U32, 256)}, tensors, alignment=256)
    assert np.array_equal(dequantize(_open(tmp_path, image.data).tensors["b"]), data)


def test_paths_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file"):
        open_checkpoint(tmp_path / "absent.gguf")
    with pytest.raises(FormatError, match=r"expected config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "x.safetensors").write_bytes(b"")
    with pytest.raises(FormatError, match="give the folder"):
        open_checkpoint(tmp_path / "x.safetensors")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="cannot be read"):
        open_checkpoint(tmp_path / "pipe")


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    _open(tmp_path, sample_gguf().data)
    assert open_checkpoint(tmp_path).path.name == "model.gguf"
    (tmp_path / "other.gguf").write_bytes(sample_gguf().data)
    with pytest.raises(FormatError, match=r"model\.gguf, other\.gguf"):
        open_checkpoint(tmp_path)


def test_inspection_sums_up_a_file(tmp_path: Path) -> None:
    inspection = inspect_model(_open(tmp_path, sample_gguf().data))
    assert inspection.architecture == "llama"
    assert inspection.num_parameters == 4 * 32 + 6 + 512
    assert [use.scheme.name for use in inspection.by_scheme] == ["Q4_K", "Q8_0", "F32"]
    assert inspection.tensor_bytes == 288 + 136 + 24
    assert inspection.bits_per_weight == pytest.approx(8 * 448 / 646)
    assert inspection.vocab_size == 4
    assert not inspection.has_chat_template

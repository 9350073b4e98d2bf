"""What is written is what the readers read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.errors import FormatError
from octavo.weights import SCHEMES
from octavo.weights.folder import INDEX_FILE, read_json
from octavo.weights.gguf import open_gguf
from octavo.weights.gguf_writer import TensorEntry, write_gguf
from octavo.weights.safetensors import open_safetensors
from octavo.weights.safetensors_writer import StoredTensor, write_folder
from octavo.weights.whole import WriteError, check_target, whole_file, whole_folder
from tests.support.gguf_file import sample_gguf

NUMBERS = st.sampled_from(
    [
        *(f"{s}int{bits}" for s in ("u", "") for bits in (8, 16, 32, 64)),
        "float32",
        "float64",
        "bool",
    ]
).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(1, 4)))
VALUES = (
    st.text(st.characters(codec="utf-8"), max_size=20)
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=4)
    | NUMBERS
)
KEYS = st.text("abc._", min_size=1, max_size=8).filter(lambda key: key != "general.alignment")


def written(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> bytes:
    entries = [TensorEntry(n, t.shape, SCHEMES["F32"]) for n, t in tensors.items()]
    file = io.BytesIO()
    data = [t.reshape(-1).view(np.uint8) for t in tensors.values()]
    write_gguf(file, metadata, entries, data)
    return file.getvalue()


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_gguf_metadata_come_back(tmp_path_factory: Any, metadata: dict[str, Any]):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(5, np.float32)}
    path.write_bytes(written(metadata, tensors))
    found = open_gguf(path)
    assert set(found.metadata) == set(metadata)
    for key, value in metadata.items():
        np.testing.assert_array_equal(found.metadata[key], value)
        if isinstance(value, np.ndarray):
            assert found.metadata[key].dtype == value.dtype
    for name, tensor in tensors.items():
        assert found.tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(found.tensors[name].data.view(np.float32), tensor.reshape(-1))


def test_a_file_written_again_says_the_same(tmp_path: Path):
    (tmp_path / "a.gguf").write_bytes(sample_gguf().data)
    first = open_gguf(tmp_path / "a.gguf")
    entries = [TensorEntry(t.name, t.shape, t.scheme) for t in first.tensors.values()]
    with whole_file(tmp_path / "b.gguf") as file:
        write_gguf(file, first.metadata, entries, [t.data for t in first.tensors.values()])
    second = open_gguf(tmp_path / "b.gguf")
    for key in set(first.metadata) - {"general.alignment"}:
        np.testing.assert_array_equal(second.metadata[key], first.metadata[key])
    for name, tensor in first.tensors.items():
        assert (second.tensors[name].scheme, second.tensors[name].shape) == (
            tensor.scheme,
            tensor.shape,
        )
        np.testing.assert_array_equal(second.tensors[name].data, tensor.data)


@pytest.mark.parametrize("value", [1j, object(), [1, 2], np.zeros((2, 2))])
def test_values_that_gguf_cannot_hold(value: Any):
    with pytest.raises(FormatError, match="key"):
        written({"key": value}, {})


def test_tensors_that_gguf_cannot_hold():
    with pytest.raises(FormatError, match="63 bytes"):
        written({}, {"n" * 64: np.zeros(1, np.float32)})
    with pytest.raises(FormatError, match="4 dimensions"):
        written({}, {"n": np.zeros((1, 1, 1, 1, 1), np.float32)})
    entry = TensorEntry("n", (2,), SCHEMES["F32"])
    with pytest.raises(FormatError, match="expected 8"):
        write_gguf(io.BytesIO(), {}, [entry], [np.zeros(4, np.uint8)])


def test_shards_and_their_index(tmp_path: Path):
    tensors = [StoredTensor(f"t{i}", "F32", (i + 1, 2)) for i in range(5)]
    with whole_folder(tmp_path / "out") as folder:
        write_folder(folder, tensors, lambda t: np.full(t.size_bytes, t.shape[0], np.uint8), 40)
    homes = read_json(tmp_path / "out" / INDEX_FILE)["weight_map"]
    assert len(set(homes.values())) == 4
    for tensor in tensors:
        file = open_safetensors(tmp_path / "out" / homes[tensor.name])
        read = file.tensor(tensor.name, tensor.name)
        assert read.shape == tensor.shape
        assert set(read.data.tolist()) == {tensor.shape[0]}


def test_a_tensor_of_another_size(tmp_path: Path):
    tensor = StoredTensor("t", "F32", (2,))
    with pytest.raises(FormatError, match="expected 8"), whole_folder(tmp_path / "o") as folder:
        write_folder(folder, [tensor], lambda _: np.zeros(4, np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("unnamed", [True, False])
def test_file_systems_without_unnamed_files(
    unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not unnamed:
        monkeypatch.delattr("os.O_TMPFILE")
    with whole_folder(tmp_path / "out") as folder:
        folder.write_text("a.txt", "a")
        folder.write_text("sub/b.txt", "b")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "sub" / "b.txt").read_text() == "b"
    with pytest.raises(ValueError, match="closed"), whole_file(tmp_path / "f") as file:
        file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_targets_that_cannot_be(tmp_path: Path):
    with pytest.raises(WriteError, match="no folder"):
        check_target(tmp_path / "none" / "f", False)
    (tmp_path / "f").touch()
    with pytest.raises(WriteError, match="--force"):
        check_target(tmp_path / "f", False)
    check_target(tmp_path / "f", True)

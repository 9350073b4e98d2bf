"""Models split into several GGUF files: any part opens all, and parts that do not fit say so."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import FormatError, ModelError, ModelNotFoundError
from octavo.weights import dequantize, inspect_model, open_checkpoint
from octavo.weights.parts import part_names, whole_name
from tests.support.gguf_file import I32, STR, U16, TensorSpec, split_files, write_gguf


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three parts in a folder of their own."""
    return _write(tmp_path, split_files("model", 3))


def _write(folder: Path, files: dict[str, bytes]) -> list[Path]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def _part(tensor: str, no: Any = 1, count: Any = 3, total: Any = 3) -> bytes:
    keys = {"split.no": no, "split.count": count, "split.tensors.count": total}
    typed = {
        key: (STR if isinstance(value, str) else I32 if "tensors" in key else U16, value)
        for key, value in keys.items()
        if value is not None
    }
    return bytes(write_gguf(typed, [TensorSpec(tensor, (4,))]).data)


def test_names_of_parts() -> None:
    assert part_names("a/b-00002-of-00003.gguf") == [
        f"a/b-0000{i}-of-00003.gguf" for i in (1, 2, 3)
    ]
    for name in ("a.gguf", "a-1-of-2.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf"):
        assert part_names(name) == [name]
    assert whole_name("b-00002-of-00003.gguf") == "b.gguf"
    assert whole_name("b.gguf") == "b.gguf"


@pytest.mark.parametrize("given_part", [0, 1, 2])
def test_any_part_opens_all(parts: list[Path], given_part: int) -> None:
    checkpoint = open_checkpoint(parts[given_part])
    assert checkpoint.path == parts[0]
    assert checkpoint.metadata["general.architecture"] == "llama"
    assert [dequantize(t)[0] for t in checkpoint.tensors.values()] == [0, 1, 2]
    assert checkpoint.file_bytes == sum(path.stat().st_size for path in parts)
    assert len(checkpoint.maps) == 3
    assert inspect_model(checkpoint).num_tensors == 3
    for tensor in checkpoint.tensors.values():
        assert checkpoint.is_mapped(tensor)
        checkpoint.release(tensor)


def test_a_folder_with_the_parts_of_one_model_is_that_model(parts: list[Path]) -> None:
    assert len(open_checkpoint(parts[0].parent).tensors) == 3
    (parts[0].parent / "other.gguf").write_bytes(parts[0].read_bytes())
    with pytest.raises(FormatError, match=r"exactly one \.gguf file"):
        open_checkpoint(parts[0].parent)


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelNotFoundError, match=r"model-00002-of-00003\.gguf: no such file"):
        open_checkpoint(parts[2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_part("t1", count=4), r"00002-of-00003\.gguf: metadata 'split\.count' is 4, but 3 in"),
        (_part("t1", count=None), r"00002-of-00003\.gguf: metadata 'split\.count' is 0, but 3"),
        (_part("t1", no=2), r"00002-of-00003\.gguf: metadata 'split\.no' is 2, expected 1"),
        (_part("t1", no="x"), r"00002-of-00003\.gguf: metadata 'split\.no': got 'x', expected a"),
        (_part("t1", total=9), r"00002-of-00003\.gguf: metadata 'split\.tensors\.count' is 9, but"),
        (_part("t0"), r"00002-of-00003\.gguf: tensor 't0' is in model-00001-of-00003\.gguf too"),
        (b"GGUF", r"00002-of-00003\.gguf: version"),
    ],
)
def test_parts_that_do_not_belong_together(parts: list[Path], content: bytes, message: str) -> None:
    parts[1].unlink()
    parts[1].write_bytes(content)
    with pytest.raises(FormatError, match=message):
        open_checkpoint(parts[0])


def test_a_wrong_number_of_tensors(tmp_path: Path) -> None:
    files = {f"m-0000{i + 1}-of-00002.gguf": _part(f"t{i}", i, 2, 5) for i in range(2)}
    with pytest.raises(FormatError, match=r"'split\.tensors\.count' is 5, but the 2 parts have 2"):
        open_checkpoint(_write(tmp_path, files)[0])


@pytest.mark.parametrize("name", ["model.gguf", "model-00001-of-00002.gguf", "m-1-of-3.gguf"])
def test_a_part_by_another_name_is_refused(parts: list[Path], name: str) -> None:
    path = parts[0].rename(parts[0].with_name(name))
    with pytest.raises(FormatError, match=r"a name that ends in '-00001-of-00003\.gguf'"):
        open_checkpoint(path)


_numbers = itertools.count()


@settings(max_examples=60, deadline=None)
@given(part=st.integers(0, 1), at=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_part_gives_an_error_or_a_model(
    tmp_path_factory: pytest.TempPathFactory, part: int, at: int, value: int
) -> None:
    files = {name: bytearray(data) for name, data in split_files("model", 2).items()}
    damaged = files[list(files)[part]]
    damaged[at % len(damaged)] = value
    folder = tmp_path_factory.getbasetemp() / f"damaged{next(_numbers)}"  # maps must not change
    folder.mkdir()
    path = _write(folder, {name: bytes(data) for name, data in files.items()})[0]
    try:
        for tensor in open_checkpoint(path).tensors.values():
            if tensor.scheme.native:
                dequantize(tensor)
    except ModelError:
        pass

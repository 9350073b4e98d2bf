"""The file that survives a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.quantize.sink import JOURNAL, Sink
from octavo.weights import SCHEMES
from octavo.weights.gguf import open_gguf
from octavo.weights.gguf_writer import TensorEntry
from octavo.weights.whole import WriteError, partial_path

ENTRIES = [TensorEntry("a", (4, 2), SCHEMES["F32"]), TensorEntry("b", (3,), SCHEMES["F32"])]
METADATA = {"general.architecture": "llama"}
A, B = np.arange(8, dtype=np.float32), np.ones(3, np.float32)


def raw(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint8)


def test_any_order_and_runs_of_rows(tmp_path: Path):
    with Sink(tmp_path / "m.gguf", METADATA, ENTRIES) as sink:
        sink.write("b", raw(B))
        sink.write("a", raw(A[:2]), 0, 1)
        assert sink.has_rows("a", 1)
        assert not sink.has("a")
        sink.write("a", raw(A[2:]), 1, 4)
        np.testing.assert_array_equal(sink.read("a", 1, 3).view(np.float32), A[2:6])
        sink.finish()
    found = open_gguf(tmp_path / "m.gguf")
    np.testing.assert_array_equal(found.tensors["a"].data.view(np.float32), A)
    np.testing.assert_array_equal(found.tensors["b"].data.view(np.float32), B)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_goes_on_after_a_kill(tmp_path: Path):
    first = Sink(tmp_path / "m.gguf", METADATA, ENTRIES)
    first.write("a", raw(A[:4]), 0, 2)
    first.close()  # what is left when a process dies
    with (partial_path(tmp_path / "m.gguf") / JOURNAL).open("ab") as journal:
        journal.write(b'{"name": "b", "ro')  # torn
    with Sink(tmp_path / "m.gguf", METADATA, ENTRIES) as again:
        assert again.resumed
        assert again.has_rows("a", 2)
        assert not again.has_rows("a", 3)
        assert not again.has("b")
        again.write("a", raw(A[4:]), 2, 4)
        again.write("b", raw(B))
        again.finish()
    found = open_gguf(tmp_path / "m.gguf")
    np.testing.assert_array_equal(found.tensors["a"].data.view(np.float32), A)


def test_other_settings_begin_anew(tmp_path: Path):
    first = Sink(tmp_path / "m.gguf", METADATA, ENTRIES)
    first.write("b", raw(B))
    first.close()
    with Sink(tmp_path / "m.gguf", {**METADATA, "x": 1}, ENTRIES) as again:
        assert not again.resumed
        assert not again.has("b")


def test_an_interrupt_keeps_the_work_and_an_error_does_not(tmp_path: Path):
    partial = partial_path(tmp_path / "m.gguf")
    with pytest.raises(KeyboardInterrupt), Sink(tmp_path / "m.gguf", METADATA, ENTRIES):
        raise KeyboardInterrupt
    assert partial.is_dir()
    with pytest.raises(ValueError, match="x"), Sink(tmp_path / "m.gguf", METADATA, ENTRIES):
        raise ValueError("x")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    sink = Sink(tmp_path / "m.gguf", METADATA, ENTRIES)
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(WriteError, match="No space left"):
        sink.write("b", raw(B))
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_not_passed_over(tmp_path: Path):
    with (
        pytest.raises(WriteError, match="not written"),
        Sink(tmp_path / "m.gguf", METADATA, ENTRIES) as sink,
    ):
        sink.finish()
    with (
        pytest.raises(WriteError, match="bytes for"),
        Sink(tmp_path / "m.gguf", METADATA, ENTRIES) as sink,
    ):
        sink.write("b", raw(A))

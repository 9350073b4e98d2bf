"""The GGUF file that is being written, in any order, and what of it survives a kill.

Beside the target lies a hidden folder with the unfinished file and a journal: a line for each
tensor once its bytes are on the disk. The same command goes on where it was; other settings begin
anew. When all is written the file takes its name and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from octavo.quantize.rounding import Bytes
from octavo.weights.gguf_writer import ALIGNMENT, TensorEntry, header_bytes
from octavo.weights.whole import WriteError, partial_path

FILE, JOURNAL = "model.gguf", "journal.jsonl"


class Sink:
    """Open with a header; `write` tensors or runs of their rows; `finish`."""

    def __init__(
        self, target: Path, metadata: Mapping[str, Any], entries: Sequence[TensorEntry]
    ) -> None:
        self.target, self.folder = target, partial_path(target)
        self.entries = {entry.name: entry for entry in entries}
        self.header = header_bytes(metadata, entries)
        self._places = self._layout(entries)
        self.done: dict[str, int] = {}
        self._file = self._journal = -1
        try:
            self._open()
        except OSError as error:
            raise self._error(error) from error

    @property
    def resumed(self) -> bool:
        """Whether anything was there from an earlier run."""
        return self._resumed

    def has(self, name: str) -> bool:
        """Whether a tensor is written whole."""
        return self.done.get(name, 0) == self.entries[name].shape[0]

    def has_rows(self, name: str, stop: int) -> bool:
        """Whether rows up to stop are written."""
        return self.done.get(name, 0) >= stop

    def write(self, name: str, data: Bytes, start: int = 0, stop: int | None = None) -> None:
        """Write rows start to stop, which follow those that are there; all by default."""
        entry = self.entries[name]
        stop = entry.shape[0] if stop is None else stop
        row_bytes = entry.size_bytes // entry.shape[0]
        if data.nbytes != (stop - start) * row_bytes:
            raise WriteError(f"quantize: '{name}': {data.nbytes} bytes for {stop - start} rows")
        try:
            view = memoryview(np.ascontiguousarray(data).reshape(-1).data)
            at = self._places[name] + start * row_bytes
            while view:
                count = os.pwrite(self._file, view, at)
                at, view = at + count, view[count:]
            os.fdatasync(self._file)
            os.write(self._journal, json.dumps({"name": name, "rows": stop}).encode() + b"\n")
        except OSError as error:
            self.discard()
            raise self._error(error) from error
        self.done[name] = stop

    def read(self, name: str, start: int, stop: int) -> Bytes:
        """Rows that are written."""
        entry = self.entries[name]
        row_bytes = entry.size_bytes // entry.shape[0]
        data = os.pread(
            self._file, (stop - start) * row_bytes, self._places[name] + start * row_bytes
        )
        return np.frombuffer(data, np.uint8)

    def finish(self) -> None:
        """Give the file its name. Everything must be written."""
        missing = [name for name in self.entries if not self.has(name)]
        if missing:
            raise WriteError(f"quantize: {len(missing)} tensors are not written: {missing[:4]}")
        try:
            os.fsync(self._file)
            os.replace(self.folder / FILE, self.target)
        except OSError as error:
            raise self._error(error) from error
        self.discard()

    def discard(self) -> None:
        """Close, and remove what is unfinished."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Close and keep what is there for the next run. Idempotent."""
        for descriptor in (self._file, self._journal):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._journal = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An interrupt keeps the work; any other error removes it."""
        if kind is not None and issubclass(kind, Exception):
            self.discard()
        self.close()

    def _layout(self, entries: Sequence[TensorEntry]) -> dict[str, int]:
        places, at = {}, len(self.header)
        for entry in entries:
            places[entry.name] = at
            at += entry.size_bytes + -entry.size_bytes % ALIGNMENT
        self.size_bytes = at
        return places

    def _open(self) -> None:
        self._resumed = self._is_ours()
        if not self._resumed:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.folder / FILE, flags, 0o644)
        self._journal = os.open(self.folder / JOURNAL, flags | os.O_APPEND, 0o644)
        if not self._resumed:
            os.pwrite(self._file, self.header, 0)
            os.ftruncate(self._file, self.size_bytes)
            line = json.dumps({"header": self._digest()}).encode() + b"\n"
            os.write(self._journal, line)

    def _is_ours(self) -> bool:
        """Read the journal; whether it belongs to the very same header."""
        journal = self.folder / JOURNAL
        if not journal.is_file() or not (self.folder / FILE).is_file():
            return False
        lines = [_line(raw) for raw in journal.read_bytes().splitlines()]
        if not lines or lines[0].get("header") != self._digest():
            return False
        for line in lines[1:]:
            name, rows = line.get("name"), line.get("rows")
            if name in self.entries and isinstance(rows, int):
                self.done[name] = min(rows, self.entries[name].shape[0])
        return True

    def _digest(self) -> str:
        return hashlib.sha256(self.header).hexdigest()

    def _error(self, error: OSError) -> WriteError:
        return WriteError(f"{self.target}: cannot be written: {error.strerror}")


def _line(raw: bytes) -> dict[str, Any]:
    """A journal line; a torn one says nothing."""
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

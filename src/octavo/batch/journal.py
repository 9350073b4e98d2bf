"""A JSONL file that grows by whole lines and survives a kill or a full disk at any moment."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from octavo.errors import OctavoError

SYNC_S = 1.0  # at most so much work is lost with the machine; none is lost with the process
_CHUNK = 1 << 20


class JournalError(OctavoError):
    """The file cannot be used or has no more room; what it holds is whole."""


class Journal:
    """Open with the records it holds; `append` adds to them. One process at a time owns a file.

    A torn last line, left by a kill, is cut off. A file that holds anything else than records is
    refused, never overwritten. Raises JournalError.
    """

    def __init__(self, path: Path, on_record: Callable[[dict[str, Any]], None]) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"batch: cannot open {path}: {error.strerror}") from error
        try:
            self._lock()
            self._size = self._recover(on_record)
        except BaseException:
            os.close(self._file)
            raise
        self._synced_s = time.monotonic()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record: all of it or, if there is no room, nothing (JournalError)."""
        data = memoryview(self._encoder.encode(record) + b"\n")
        try:
            at = self._size
            while data:
                count = os.pwrite(self._file, data, at)
                at, data = at + count, data[count:]
            self._size = at
            if time.monotonic() - self._synced_s > SYNC_S:
                self.sync()
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise JournalError(
                f"batch: cannot write to {self.path}: {error.strerror}; it holds everything that "
                "was finished before"
            ) from error

    def sync(self) -> None:
        """Have everything on the disk."""
        os.fdatasync(self._file)
        self._synced_s = time.monotonic()

    def close(self) -> None:
        """Sync and give the file up. Idempotent."""
        if self._file >= 0:
            with suppress(OSError):  # of the disk: append has told it, nothing is left to do
                self.sync()
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"batch: {self.path} is being written by another process") from error

    def _recover(self, on_record: Callable[[dict[str, Any]], None]) -> int:
        """Read the records, cut a torn end off, and return the size."""
        size = 0
        with open(self._file, "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    self._check_torn(line, number)
                    break
                on_record(self._record(line, number))
                size += len(line)
        os.ftruncate(self._file, size)
        return size

    def _check_torn(self, line: bytes, number: int) -> None:
        """The last line without its end must be the beginning of a record of ours."""
        begin = b'{"id":"batch_req_'
        if line[: len(begin)] != begin[: len(line)]:
            raise self._foreign(number)

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._foreign(number) from None
        if not isinstance(record, dict) or not {"custom_id", "response", "error"} <= record.keys():
            raise self._foreign(number)
        return record

    def _foreign(self, number: int) -> JournalError:
        return JournalError(
            f"batch: {self.path}, line {number}: is not a record of a batch; choose another file"
        )

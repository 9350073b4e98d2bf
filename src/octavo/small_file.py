"""Reading the small files beside a model's weights: JSON, chat templates."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from octavo.errors import FormatError

MAX_BYTES = 64 * 1024 * 1024


def read_small(path: Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of an untrusted file. Raises FormatError naming it unless it is a regular file (not
    a folder, nor a pipe that would be waited for, nor a device without end) of `most` bytes or
    less that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            _check(path, os.fstat(descriptor), most)
            return file.read(most)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None


def check_small(path: Path, most: int) -> None:
    """What `read_small` checks, for a file that a library reads by its path."""
    try:
        _check(path, path.stat(), most)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None


def _check(path: Path, found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{path}: is not a regular file")
    if found.st_size > most:
        raise FormatError(f"{path}: has {found.st_size} bytes, expected at most {most}")

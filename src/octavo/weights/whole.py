"""Files and folders that appear whole or not at all, whatever ends the program.

A file has no name while it is written (O_TMPFILE), so that nothing is left of it after a kill;
where the file system cannot do that, it has a hidden name beside its own, which the next run
reuses.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from octavo.errors import ModelError


class WriteError(ModelError):
    """A model cannot be written there; nothing of it was left behind."""


def partial_path(path: Path) -> Path:
    """Where a file or folder lies until it is whole, if it needs a name."""
    return path.with_name(f".{path.name}.partial")


def check_target(path: Path, replace: bool) -> None:
    """Raise WriteError where something is there already or the folder around it is missing."""
    if path.exists() and not replace:
        raise WriteError(f"{path}: is there already; choose another name, or --force to replace it")
    if not path.parent.is_dir():
        raise WriteError(f"{path}: there is no folder {path.parent}; create it first")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, in place of what is there once the block ends without an error.

    Raises WriteError for what the disk refuses; then the old file, if any, is untouched.
    """
    try:
        descriptor, named = _open(path)
        try:
            with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not named:
                    with suppress(FileNotFoundError):  # of a run that was killed
                        partial_path(path).unlink()
                    _link(file.fileno(), partial_path(path))
            os.replace(partial_path(path), path)
        except BaseException:
            with suppress(OSError):
                partial_path(path).unlink()
            raise
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


class NewFolder:
    """A folder that does not exist yet: files are written to, and appear together at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[tuple[str, BinaryIO, bool]] = []

    def open(self, name: str) -> BinaryIO:
        """A new file of this name; subfolders come along. Not to be closed by the caller."""
        descriptor, named = _open(self.path.parent / f"{self.path.name}-{name.replace('/', '-')}")
        file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._files.append((name, file, named))
        return file

    def write_text(self, name: str, text: str) -> None:
        """A new file that holds this text in UTF-8."""
        self.open(name).write(text.encode("utf-8"))

    def gather(self, folder: Path) -> None:
        """Put all files into a folder that exists."""
        for name, file, named in self._files:
            file.flush()
            os.fsync(file.fileno())
            home = folder / name
            home.parent.mkdir(parents=True, exist_ok=True)
            if named:
                os.replace(self._hidden(name), home)
            else:
                _link(file.fileno(), home)

    def close(self) -> None:
        """Let go of all files; those that have no home yet are gone."""
        for name, file, _ in self._files:
            with suppress(OSError):  # what the disk refuses has been told
                file.close()
            self._hidden(name).unlink(missing_ok=True)

    def _hidden(self, name: str) -> Path:
        return partial_path(self.path.parent / f"{self.path.name}-{name.replace('/', '-')}")


@contextmanager
def whole_folder(path: Path) -> Iterator[NewFolder]:
    """A folder to fill, which appears once the block ends without an error.

    Raises WriteError for what the disk refuses.
    """
    partial, new = partial_path(path), NewFolder(path)
    try:
        try:
            yield new
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            new.gather(partial)
            if path.exists():
                shutil.rmtree(path)
            os.rename(partial, path)
        finally:
            new.close()
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


def _open(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether it has a name."""
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):
            return os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.open(partial_path(path), flags, 0o644), True


def _link(descriptor: int, path: Path) -> None:
    """Give an unnamed file a name, which must be free."""
    # Python calls linkat, which alone follows the link to the open file, only with a directory.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        source = f"/proc/self/fd/{descriptor}"
        os.link(source, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)

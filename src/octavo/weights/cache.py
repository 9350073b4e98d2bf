"""The folder that fetched models are kept in, and a lock between processes that fetch."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import DownloadError

Progress = Callable[[int, int, str], None]
"""Called as progress(done_bytes, total_bytes, label) a few times a second while fetching."""

POLL_S = 0.1
CHUNK_BYTES = 4 * 1024 * 1024


def cache_folder() -> Path:
    """Where models are cached: $OCTAVO_CACHE, else the platform's cache folder for "octavo"."""
    chosen = os.environ.get("OCTAVO_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("octavo", appauthor=False)


def sha256_of(path: Path, progress: Progress, label: str) -> str:
    """A file's SHA-256 in hexadecimal, reporting as it goes."""
    size, digest = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            progress(file.tell(), size, label)
    return digest.hexdigest()


@contextmanager
def locked(path: Path, while_waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, calling `while_waiting` until it is had.

    The lock goes with the process, however it ends. The file stays: removing it would let two
    processes lock two files of the same name. Raises DownloadError if there can be no such file.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise DownloadError(
            f"sources: cannot make {path}: {error.strerror}; set OCTAVO_CACHE to a folder that can"
            " be written"
        ) from error
    with file:
        while not _try_lock(file.fileno()):
            while_waiting()
            time.sleep(POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Responses in a folder, so that they are there again after a restart.

A file a response, replaced as a whole. The writing is done by one thread, in order, so that no
answer waits for the disk; what cannot be written is kept in memory only. Files are not trusted when
they are read: what is malformed is left alone and not shown.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from octavo.serving.json import encode
from octavo.serving.openai.responses.answer import ErrorBody, Response

_log = logging.getLogger("octavo.serving")


class Kept(msgspec.Struct):
    """What a file holds; as store.Stored, but for expires_at: seconds since 1970."""

    response: Response
    owner: str
    input: list[dict[str, Any]]
    history: list[dict[str, Any]]
    expires_at: float


class Shelf:
    """The folder, which no other process may use; made if it is not there. Raises OSError if it
    cannot be. max_file_bytes: larger files are not read."""

    def __init__(self, folder: Path, max_file_bytes: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._max_file_bytes = folder, max_file_bytes
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="responses")
        self._told = False

    def all(self) -> Iterator[Kept]:
        """What is there, the oldest first. What was being worked on has failed."""
        for leftover in self._folder.glob("*.new"):
            leftover.unlink(missing_ok=True)
        found = [(path.stat().st_mtime_ns, path) for path in self._folder.glob("*.json")]
        for _, path in sorted(found):
            kept = self._read(path)
            if kept is not None:
                yield kept

    def put(self, kept: Kept) -> None:
        """Write a response, soon."""
        data, path = encode(kept), self._path(kept.response.id)
        self._writer.submit(self._tell, lambda: _replace(path, data))

    def drop(self, response_id: str) -> None:
        """Remove a response, soon."""
        path = self._path(response_id)
        self._writer.submit(self._tell, lambda: path.unlink(missing_ok=True))

    def close(self) -> None:
        """Return when everything is written."""
        self._writer.shutdown()

    def _read(self, path: Path) -> Kept | None:
        try:
            if path.stat().st_size > self._max_file_bytes:
                return None
            kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        response = kept.response
        if path != self._path(response.id):
            return None
        if kept.expires_at <= time.time():
            path.unlink(missing_ok=True)
            return None
        if response.status in ("queued", "in_progress"):
            response.status = "failed"
            response.error = ErrorBody("server_error", "The server was stopped before the end.")
        return kept

    def _path(self, response_id: str) -> Path:
        """Clients may choose a part of an id; it never becomes a path."""
        return self._folder / f"{_digest(response_id)}.json"

    def _tell(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if not self._told:
                _log.warning("stored responses will not survive a restart: %s", error)
            self._told = True
        else:
            self._told = False


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_suffix(".new")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def _digest(response_id: str) -> str:
    return hashlib.sha256(response_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]

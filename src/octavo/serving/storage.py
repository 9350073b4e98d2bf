"""What the server keeps on disk: files and batches, in one folder that one server owns."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fastapi import Request
from starlette.types import ASGIApp

from octavo.errors import EngineError
from octavo.serving.batches import Batches
from octavo.serving.context import Serving, serving_of
from octavo.serving.errors import ApiError
from octavo.serving.files import FileStore


class Storage:
    """Opens (and makes) the folder; raises EngineError if another server uses it. Made in the event
    loop, which `start` and `stop` belong to."""

    def __init__(self, folder: Path, serving: Serving) -> None:
        options = serving.options
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds what clients wrote
            self._lock = _locked(folder)
            self.files = FileStore(folder / "files", options.max_data_bytes)
            self.batches = Batches(
                folder / "batches", self.files, serving, options.batch_concurrency
            )
        except OSError as error:
            raise EngineError(f"serve: --data-dir {folder}: {error.strerror}") from error

    def start(self, app: ASGIApp) -> None:
        """Go on with batches that are not done."""
        self.batches.start(app)

    async def stop(self) -> None:
        """Let go of the folder; batches go on with the next start."""
        await self.batches.stop()
        os.close(self._lock)


def _locked(folder: Path) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise EngineError(f"serve: --data-dir {folder}: another server uses it") from None
    return descriptor


def storage_of(request: Request) -> Storage:
    """The app's Storage. Raises 404 if it has none."""
    found: Storage | None = serving_of(request).storage
    if found is None:
        message = "This server keeps no files; start it with --data-dir FOLDER."
        raise ApiError(404, message, code="files_not_enabled")
    return found


def owner_of(request: Request) -> str:
    """Whose files a request may see: its tenant's."""
    return str(getattr(request.state, "tenant", ""))

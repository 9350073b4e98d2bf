"""Files in a folder: content under the file's id, and beside it what is known of it.

A file is there with its description or not at all: both are written under another name first.
Names that clients choose are kept as text and never become paths.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.serving.errors import ApiError, invalid

PURPOSES = ("batch", "assistants", "fine-tune", "vision", "user_data", "evals")
OUTPUT_PURPOSE = "batch_output"
MIN_LIFETIME_S, MAX_LIFETIME_S = 3600, 30 * 24 * 3600  # of files that expire
_ID = re.compile(r"file-[0-9a-f]{32}")


@dataclass(frozen=True)
class StoredFile:
    """What is known of a file. Times are seconds since 1970; owner: the tenant it belongs to."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None
    owner: str = ""

    def shown(self) -> dict[str, Any]:
        """OpenAI's file object."""
        fields = {name: value for name, value in asdict(self).items() if name != "owner"}
        return {**fields, "object": "file", "status": "processed", "status_details": None}


class FileStore:
    """The files of one folder, which no other process may use. max_bytes: all contents together.

    `folder` and what it holds may come from an earlier run; leftovers of unfinished uploads go.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self.work_folder = folder / "work"  # results that are still growing
        self.work_folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, StoredFile] = {}
        self._load()

    @property
    def num_bytes(self) -> int:
        """What all contents take."""
        return sum(file.bytes for file in self._files.values())

    @property
    def room(self) -> int:
        """Bytes that may still be added."""
        return max(0, self._max_bytes - self.num_bytes)

    def all(self, owner: str) -> list[StoredFile]:
        """The owner's files, oldest first."""
        self._expire()
        return [file for file in self._files.values() if file.owner == owner]

    def get(self, file_id: str, owner: str, param: str | None = None) -> StoredFile:
        """One of the owner's files. Raises 404."""
        self._expire()
        found = self._files.get(file_id)
        if found is None or found.owner != owner:
            shown = file_id[:80].encode("ascii", "backslashreplace").decode()
            message = f"There is no file '{shown}'."
            raise ApiError(404, message, param=param or "file_id", code="file_not_found")
        return found

    def path(self, file_id: str) -> Path:
        """Where a file's content is."""
        return self._folder / f"{file_id}.data"

    def new_draft(self) -> Path:
        """A path to write a content to; `keep` makes it a file, and so it is kept."""
        return self._folder / f"{new_id()}.part"

    def keep(
        self,
        draft: Path,
        filename: str,
        purpose: str,
        owner: str,
        lifetime_s: int | None = None,
        file_id: str | None = None,
    ) -> StoredFile:
        """Make a draft a file. file_id: its id, if it was promised before."""
        now = int(time.time())
        file = StoredFile(
            id=file_id or draft.stem,
            bytes=draft.stat().st_size,
            created_at=now,
            filename=filename,
            purpose=purpose,
            expires_at=None if lifetime_s is None else now + lifetime_s,
            owner=owner,
        )
        with told_if_full():
            write_whole(self._description(file.id), msgspec.json.encode(file))
            os.replace(draft, self.path(file.id))
        self._files[file.id] = file
        return file

    def delete(self, file_id: str) -> None:
        """Forget a file and remove its content."""
        self._files.pop(file_id, None)
        self._description(file_id).unlink(missing_ok=True)
        self.path(file_id).unlink(missing_ok=True)

    def _load(self) -> None:
        for leftover in [*self._folder.glob("*.part"), *self._folder.glob("*.new")]:
            leftover.unlink(missing_ok=True)
        found = [file for file in self._described() if self.path(file.id).is_file()]
        for file in sorted(found, key=lambda file: (file.created_at, file.id)):
            self._files[file.id] = file

    def _described(self) -> Iterator[StoredFile]:
        for path in self._folder.glob("*.json"):
            try:
                file = msgspec.json.decode(path.read_bytes(), type=StoredFile)
            except (OSError, msgspec.MsgspecError):
                continue  # not ours; it is left alone
            if file.id == path.stem and _ID.fullmatch(file.id):
                yield file

    def _description(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.json"

    def _expire(self) -> None:
        now = time.time()
        for file in list(self._files.values()):
            if file.expires_at is not None and file.expires_at <= now:
                self.delete(file.id)


def new_id(prefix: str = "file-") -> str:
    """A fresh id."""
    return f"{prefix}{secrets.token_hex(16)}"


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file's content at once: a reader sees the old or the new one, never a part."""
    scratch = path.with_suffix(".new")
    try:
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


class told_if_full:
    """A full disk becomes a 507; other errors of the disk pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full() from error


def disk_full() -> ApiError:
    """The answer when the disk, or the share of it that files may take, is full."""
    message = "The server has no room for this file; delete files that are not needed any more."
    return ApiError(507, message, kind="server_error", code="disk_full")


def check_purpose(purpose: str | None) -> str:
    """A purpose that an upload may have."""
    if purpose not in PURPOSES:
        raise invalid("purpose", f"purpose: expected one of {', '.join(PURPOSES)}")
    return purpose

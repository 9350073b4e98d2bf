"""An upload: multipart/form-data read as it comes, the file's part straight to its draft."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from octavo.serving.disconnect import ClientGoneError
from octavo.serving.errors import ApiError, invalid
from octavo.serving.files.store import FileStore, disk_full, told_if_full

MAX_FIELDS = 16
MAX_FIELD_BYTES = 1024
MAX_NAME_CHARS = 255
WRITE_BYTES = 1 << 20
OVERHEAD_BYTES = 64 << 10  # boundaries, headers and fields round the file


@dataclass
class Upload:
    """fields: the form's texts by name. filename: None if no file came."""

    draft: Path
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None


async def receive_upload(request: Request, store: FileStore, max_bytes: int) -> Upload:
    """Read the form; the caller keeps or removes the draft. Raises ApiError, and then the draft is
    gone: 400 for a malformed form, 413 and 507 for a file that is too large for us or the disk."""
    boundary = _boundary(request)
    room = store.room
    upload = Upload(store.new_draft())
    try:
        with upload.draft.open("wb", buffering=0) as file:
            form = _Form(upload, boundary)
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes + OVERHEAD_BYTES:
                    raise _too_large(max_bytes)
                form.feed(chunk)
                if len(form.content) >= WRITE_BYTES:
                    await _write(file.fileno(), form.take())
                if form.num_bytes > max_bytes:
                    raise _too_large(max_bytes)
                if form.num_bytes > room:
                    raise disk_full()
            form.finish()
            await _write(file.fileno(), form.take())
    except ClientDisconnect:
        upload.draft.unlink(missing_ok=True)
        raise ClientGoneError from None
    except BaseException:
        upload.draft.unlink(missing_ok=True)
        raise
    return upload


class _Form:
    """Cuts a form into its parts as bytes come."""

    def __init__(self, upload: Upload, boundary: bytes) -> None:
        self.content = bytearray()
        self.num_bytes = 0
        self._upload = upload
        self._name, self._value = "", bytearray()
        self._header, self._header_value = bytearray(), bytearray()
        self._disposition = b""
        self._in_file = False
        self._ended = False
        callbacks = {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_header_field": self._header_name_bytes,
            "on_header_value": self._header_value_bytes,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_end": self._finish,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _malformed(str(error)) from None

    def finish(self) -> None:
        """The body has ended."""
        try:
            self._parser.finalize()
        except FormParserError as error:
            raise _malformed(str(error)) from None
        if not self._ended:
            raise _malformed("it ends before its last boundary")

    def take(self) -> bytes:
        """The file's bytes that have come since the last call."""
        taken, self.content = bytes(self.content), bytearray()
        return taken

    def _begin(self) -> None:
        self._disposition, self._name, self._value = b"", "", bytearray()
        self._in_file = False

    def _header_name_bytes(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value_bytes(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header, self._header_value = bytearray(), bytearray()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if not self._name:
            raise _malformed("a part has no name")
        if b"filename" in options:
            self._begin_file(options[b"filename"])
        elif len(self._upload.fields) >= MAX_FIELDS:
            raise _malformed(f"it has more than {MAX_FIELDS} fields")

    def _begin_file(self, filename: bytes) -> None:
        if self._name != "file":
            name = self._name[:80]
            raise invalid(name, f"{name}: only 'file' may be a file")
        if self._upload.filename is not None:
            raise invalid("file", "file: came twice")
        self._upload.filename = _clean_name(filename)
        self._in_file = True

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.content += data[start:end]
            self.num_bytes += end - start
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            name = self._name[:80]
            raise invalid(name, f"{name}: is longer than {MAX_FIELD_BYTES} bytes")

    def _end(self) -> None:
        if not self._in_file:
            self._upload.fields[self._name] = self._value.decode("utf-8", "replace")

    def _finish(self) -> None:
        self._ended = True


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 70:
        raise _malformed("the Content-Type must be multipart/form-data with a boundary")
    return boundary


def _clean_name(raw: bytes) -> str:
    """The last part of a path, without control characters."""
    name = raw.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in name if c.isprintable())[:MAX_NAME_CHARS] or "upload"


async def _write(descriptor: int, data: bytes) -> None:
    with told_if_full():
        await asyncio.to_thread(_write_all, descriptor, data)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _malformed(reason: str) -> ApiError:
    return invalid("file", f"file: the form is malformed: {reason}", "invalid_form")


def _too_large(max_bytes: int) -> ApiError:
    message = f"file: is larger than {max_bytes:,} bytes."
    return ApiError(413, message, param="file", code="file_too_large")

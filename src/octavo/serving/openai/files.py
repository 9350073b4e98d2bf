"""The routes of /v1/files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from octavo.serving.context import serving_of
from octavo.serving.errors import ApiError, invalid
from octavo.serving.files import (
    MAX_LIFETIME_S,
    MIN_LIFETIME_S,
    check_purpose,
    receive_upload,
)
from octavo.serving.json import JsonResponse
from octavo.serving.pages import page_of
from octavo.serving.storage import owner_of, storage_of

CHUNK_BYTES = 256 << 10

router = APIRouter(prefix="/v1/files", tags=["Files"])


@router.post("")
async def upload(request: Request) -> Response:
    """Take a file: multipart/form-data with "file", "purpose" and perhaps "expires_after"."""
    store = storage_of(request).files
    form = await receive_upload(request, store, serving_of(request).options.max_file_bytes)
    try:
        if form.filename is None:
            raise invalid("file", "file: is missing")
        purpose = check_purpose(form.fields.pop("purpose", None))
        lifetime_s = _lifetime(form.fields)
        for name in form.fields:
            raise invalid(name[:80], f"{name[:80]}: there is no such parameter")
        file = store.keep(form.draft, form.filename, purpose, owner_of(request), lifetime_s)
    finally:
        form.draft.unlink(missing_ok=True)
    return JsonResponse(file.shown())


@router.get("")
async def files(request: Request) -> Response:
    """The files, newest first unless asked otherwise."""
    found = storage_of(request).files.all(owner_of(request))
    purpose = request.query_params.get("purpose")
    if purpose is not None:
        found = [file for file in found if file.purpose == purpose]
    return JsonResponse(page_of(request, [file.shown() for file in found], max_limit=10_000))


@router.get("/{file_id}")
async def file(request: Request, file_id: str) -> Response:
    """One of them."""
    return JsonResponse(storage_of(request).files.get(file_id, owner_of(request)).shown())


@router.delete("/{file_id}")
async def delete(request: Request, file_id: str) -> Response:
    """Remove a file; 409 while a batch needs it."""
    storage = storage_of(request)
    found = storage.files.get(file_id, owner_of(request))
    user = storage.batches.user_of(found.id)
    if user is not None:
        message = f"The file is being read by {user}; cancel that first."
        raise ApiError(409, message, param="file_id", code="file_in_use")
    storage.files.delete(found.id)
    return JsonResponse({"id": found.id, "object": "file", "deleted": True})


@router.get("/{file_id}/content")
async def content(request: Request, file_id: str) -> Response:
    """A file's content."""
    store = storage_of(request).files
    found = store.get(file_id, owner_of(request))
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.filename, safe='')}",
        "Content-Length": str(found.bytes),
        "X-Content-Type-Options": "nosniff",
    }
    body = _chunks(store.path(found.id))
    return StreamingResponse(body, media_type="application/octet-stream", headers=headers)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as source:
        while data := await source.read(CHUNK_BYTES):
            yield data


def _lifetime(fields: dict[str, Any]) -> int | None:
    anchor = fields.pop("expires_after[anchor]", None)
    seconds = fields.pop("expires_after[seconds]", None)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise invalid("expires_after", "expires_after.anchor: expected created_at")
    text = str(seconds)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise invalid("expires_after", "expires_after.seconds: expected an integer")
    if not MIN_LIFETIME_S <= int(text) <= MAX_LIFETIME_S:
        message = f"expires_after.seconds: expected {MIN_LIFETIME_S} to {MAX_LIFETIME_S}"
        raise invalid("expires_after", message)
    return int(text)

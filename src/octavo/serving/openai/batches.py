"""The routes of /v1/batches."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from octavo.batch import ENDPOINTS
from octavo.serving.body import StrictModel, read_object, validate
from octavo.serving.context import serving_of
from octavo.serving.describe import accepts
from octavo.serving.errors import invalid
from octavo.serving.files import MAX_LIFETIME_S, MIN_LIFETIME_S
from octavo.serving.json import JsonResponse
from octavo.serving.pages import page_of
from octavo.serving.storage import owner_of, storage_of

router = APIRouter(prefix="/v1/batches", tags=["Batches"])


class ExpiresAfter(StrictModel):
    """How long result files are kept, from when they are made."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)


class BatchRequest(StrictModel):
    """Body of POST /v1/batches."""

    input_file_id: str
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: Literal["24h"]
    output_expires_after: ExpiresAfter | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=64)],
                Annotated[str, Field(max_length=512)],
            ],
            Field(max_length=16),
        ]
        | None
    ) = None


@router.post("", openapi_extra=accepts(BatchRequest))
async def create(request: Request) -> Response:
    """Answer the requests of a file, when nothing more urgent is to be done."""
    storage, owner = storage_of(request), owner_of(request)
    data = await read_object(request, serving_of(request).options.max_body_bytes)
    body = validate(BatchRequest, data)
    source = storage.files.get(body.input_file_id, owner, "input_file_id")
    if source.purpose != "batch":
        message = f"input_file_id: the file's purpose is {source.purpose}, expected batch"
        raise invalid("input_file_id", message)
    batch = storage.batches.create(
        body.endpoint,
        source.id,
        body.metadata or {},
        owner,
        None if body.output_expires_after is None else body.output_expires_after.seconds,
    )
    return JsonResponse(batch.shown())


@router.get("")
async def batches(request: Request) -> Response:
    """The batches, newest first."""
    found = storage_of(request).batches.all(owner_of(request))
    return JsonResponse(page_of(request, [b.shown() for b in found], max_limit=100, limit=20))


@router.get("/{batch_id}")
async def batch(request: Request, batch_id: str) -> Response:
    """One of them."""
    found = storage_of(request).batches.get(batch_id, owner_of(request))
    return JsonResponse(found.shown())


@router.post("/{batch_id}/cancel")
async def cancel(request: Request, batch_id: str) -> Response:
    """Stop a batch; what it has done so far becomes its output."""
    storage = storage_of(request)
    found = storage.batches.get(batch_id, owner_of(request))
    storage.batches.cancel(found)
    return JsonResponse(found.shown())

"""Adapters over HTTP: chosen by a request's `model` or its field `lora`; loaded and unloaded."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import PlainTextResponse, Response

from octavo.errors import ModelError, OctavoError
from octavo.serving.body import StrictModel, read_object, validate
from octavo.serving.context import serving_of
from octavo.serving.describe import accepts
from octavo.serving.errors import ApiError, translate

router = APIRouter(tags=["Adapters"])
"""Included where the server's options allow it."""


class LoadBody(StrictModel):
    """Body of POST /v1/load_lora_adapter: a name to ask for, and the adapter's folder here."""

    lora_name: str = Field(min_length=1, max_length=128)
    lora_path: str = Field(min_length=1, max_length=4096)


class UnloadBody(StrictModel):
    """Body of POST /v1/unload_lora_adapter."""

    lora_name: str = Field(min_length=1, max_length=128)


@router.post("/v1/load_lora_adapter", openapi_extra=accepts(LoadBody))
async def load(request: Request) -> Response:
    """Load an adapter; later requests may name it as their model."""
    serving = serving_of(request)
    body = validate(LoadBody, await read_object(request, serving.options.max_body_bytes))
    serving.check_ready("generate")
    if body.lora_name in serving.names:
        raise ApiError(400, f"lora_name: '{body.lora_name}' is the model's", param="lora_name")
    try:
        await serving.client.load_adapter(body.lora_name, body.lora_path)
    except ModelError as error:
        raise ApiError(400, str(error), param="lora_path") from error
    except OctavoError as error:
        raise translate(error) from error
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")


@router.post("/v1/unload_lora_adapter", openapi_extra=accepts(UnloadBody))
async def unload(request: Request) -> Response:
    """Unload an adapter that no request uses."""
    serving = serving_of(request)
    body = validate(UnloadBody, await read_object(request, serving.options.max_body_bytes))
    serving.check_ready("generate")
    if body.lora_name not in serving.adapters:
        message = f"lora_name: no adapter '{body.lora_name}' is loaded"
        raise ApiError(404, message, param="lora_name", code="model_not_found")
    try:
        await serving.client.unload_adapter(body.lora_name)
    except OctavoError as error:
        raise translate(error) from error
    return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

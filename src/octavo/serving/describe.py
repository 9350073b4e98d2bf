"""Parts of the OpenAPI document that FastAPI cannot see, as handlers read and write JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel

COMPONENTS: dict[str, Any] = {}
"""JSON schemas that the routes' descriptions refer to, for the app's OpenAPI document."""

_REF = "#/components/schemas/"


class OpenAiErrorBody(msgspec.Struct):
    """What went wrong. param: the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiError(msgspec.Struct):
    """An error as the OpenAI protocol shows it."""

    error: OpenAiErrorBody


def accepts(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose handler reads the body `model` itself."""
    prefix = _prefix(model)
    schema = model.model_json_schema(ref_template=f"{_REF}{prefix}{{model}}")
    for name, part in schema.pop("$defs", {}).items():
        COMPONENTS[prefix + name] = part
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers(
    whole: Any, *, stream: Any = None, media: str = "text/event-stream", error: Any = OpenAiError
) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route. whole: the msgspec Struct of an answer; stream: that of the items of
    a streamed one, which has the type `media`; error: that of every error."""
    content = {"application/json": {"schema": schema_of(whole, _prefix(whole))}}
    if stream is not None:
        item = schema_of(stream, _prefix(whole))
        item = _event_of(item) if media == "text/event-stream" else item
        content[media] = {"itemSchema": item}
    return {200: {"description": "The answer", "content": content}, **failures(error)}


def failures(error: Any = OpenAiError) -> dict[int | str, dict[str, Any]]:
    """`responses` for all errors. error: the msgspec Struct of one."""
    failed = {"application/json": {"schema": schema_of(error, _prefix(error))}}
    return {
        "4XX": {"description": "The request is wrong, or comes too often", "content": failed},
        "5XX": {"description": "The server cannot answer now", "content": failed},
    }


def complete(document: dict[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """An OpenAPI document with the schemas that routes refer to, with errors in OpenAI's shape
    where a route says nothing about errors, and with the names of the models served."""
    usual = failures()
    for operations in document["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            responses.pop("422", None)  # FastAPI's own, which never leaves here
            if "4XX" not in responses:
                responses.update(usual)
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            _name_models(body.get("schema", {}), models)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(COMPONENTS)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return document


def _name_models(schema: dict[str, Any], models: Sequence[str]) -> None:
    model = schema.get("properties", {}).get("model")
    if model is not None and model.get("type") == "string":
        model["enum"] = [*models]


def schema_of(kind: Any, prefix: str) -> dict[str, Any]:
    """The JSON schema of a msgspec type. What it refers to goes to COMPONENTS, under names that
    begin with `prefix`."""
    template = f"{_REF}{prefix}{{name}}"
    (schema,), components = msgspec.json.schema_components([kind], ref_template=template)
    COMPONENTS.update({prefix + name: part for name, part in components.items()})
    return schema


def _prefix(kind: Any) -> str:
    """Different protocols may use one name: "anthropic.answer." comes before it."""
    return ".".join([*kind.__module__.split(".")[2:], ""])


def _event_of(item: dict[str, Any]) -> dict[str, Any]:
    """A server-sent event whose data is JSON of the schema `item`."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": item}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }

"""Parts of the OpenAPI document that FastAPI cannot see, as handlers read and write JSON."""

from __future__ import annotations

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
    schema = model.model_json_schema(ref_template=f"{_REF}{{model}}")
    COMPONENTS.update(schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers(
    whole: Any, *, stream: Any = None, media: str = "text/event-stream", error: Any = OpenAiError
) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route. whole: the msgspec type of an answer; stream: that of the items of a
    streamed one, which has the type `media`; error: that of every error."""
    content = {"application/json": {"schema": schema_of(whole)}}
    if stream is not None:
        item = schema_of(stream)
        if media == "text/event-stream":
            content[media] = {"schema": {"type": "string"}, "itemSchema": _event_of(item)}
        else:
            content[media] = {"schema": {"type": "string"}, "itemSchema": item}
    failed = {"application/json": {"schema": schema_of(error)}}
    return {
        200: {"description": "The answer", "content": content},
        "4XX": {"description": "The request is wrong, or comes too often", "content": failed},
        "5XX": {"description": "The server cannot answer now", "content": failed},
    }


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a msgspec type; what it refers to goes to COMPONENTS."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template=f"{_REF}{{name}}")
    COMPONENTS.update(components)
    return schema


def _event_of(item: dict[str, Any]) -> dict[str, Any]:
    """A server-sent event whose data is JSON of the schema `item`."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": item}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }

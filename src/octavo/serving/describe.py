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
        content[media] = {"schema": {"type": "string"}, "itemSchema": item}
    failed = {"application/json": {"schema": schema_of(error, _prefix(error))}}
    return {
        200: {"description": "The answer", "content": content},
        "4XX": {"description": "The request is wrong, or comes too often", "content": failed},
        "5XX": {"description": "The server cannot answer now", "content": failed},
    }


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

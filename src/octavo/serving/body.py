"""From bytes to a checked request model; every fault is a 4xx that names the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from octavo.serving.disconnect import ClientGoneError
from octavo.serving.errors import ApiError, invalid
from octavo.serving.terms import take_terms

Model = TypeVar("Model", bound=BaseModel)
MAX_DEPTH = 64  # of nested arrays and objects
DEEP_FIELDS = frozenset(  # fields in which errors name the place, not just the field
    {
        *("messages", "tools", "tool_choice", "input", "text", "reasoning", "options"),
        *("system", "thinking", "output_config", "metadata"),
    }
)


class StrictModel(BaseModel):
    """JSON types are not converted: "5" is no number and true no integer."""

    model_config = ConfigDict(strict=True, extra="forbid")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises 413 as soon as it is known to be too large; the rest is not read, so
    that the connection cannot be used again, and says so."""
    message = f"The body is larger than {max_bytes:,} bytes."
    closing = {"Connection": "close"}
    too_large = ApiError(413, message, code="body_too_large", headers=closing)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
    return b"".join(parts)


async def read_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """The body as a JSON object, without the fields that `terms` reads. Raises 400 if it is none,
    413 if it is too large."""
    try:
        data = decode_object(await read_body(request, max_bytes))
    except ClientDisconnect:
        raise ClientGoneError from None
    take_terms(request, data, len(request.app.state.serving.keyring.weights) > 1)
    return data


def decode_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`."""
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(None, f"The body is not valid JSON: {error}", "invalid_json") from None
    except RecursionError:
        raise invalid(None, "The body is nested too deeply.", "invalid_json") from None
    if not isinstance(data, dict):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")
    if _depth(data) > MAX_DEPTH:
        raise invalid(None, f"The body is nested more than {MAX_DEPTH} deep.", "invalid_json")
    return data


def validate(model: type[Model], data: dict[str, Any]) -> Model:
    """`data` as `model`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explain(error, data) from None


def _truth(value: Any) -> Any:
    """Refuse 0 and 1, which Python takes for truth values."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


Off = Annotated[Literal[False], BeforeValidator(_truth)]
"""A switch that cannot be on."""


def keep_known(
    data: Mapping[str, Any],
    known: Iterable[str],
    harmless: Collection[str],
    idle: Mapping[str, tuple[Any, ...]],
    within: str = "",
) -> dict[str, Any]:
    """`data` without fields that ask for nothing: those of `harmless`, and those of `idle` that are
    null or have one of its values. Raises 400 for any other field outside `known`. within: what
    errors put before a field's name, "options."."""
    known = frozenset(known)
    for name in [n for n in data if n not in known and n not in harmless]:
        param = f"{within}{name}"
        if name not in idle:
            raise invalid(param, f"{param}: there is no such parameter", "unknown_parameter")
        if data[name] is not None and data[name] not in idle[name]:
            message = f"{param}: is not supported by this server"
            raise invalid(param, message, "unsupported_parameter")
    return {name: value for name, value in data.items() if name in known}


def _explain(error: ValidationError, data: dict[str, Any]) -> ApiError:
    """The field at fault, with everything that was expected of it. Among the members of a union
    the one that understood most of the value speaks."""
    found = [
        (_path(item["loc"], data, item["type"] == "missing") + _tag(item), item["msg"])
        for item in error.errors(include_url=False, include_input=False)
    ]
    first = re.split(r"[.\[]", found[0][0])[0]
    param = max((path for path, _ in found if path.startswith(found[0][0])), key=len)
    if first not in DEEP_FIELDS:
        param = first
    reasons = dict.fromkeys(reason for path, reason in found if path.startswith(param))
    return invalid(param, f"{param}: " + " or ".join(list(reasons)[:4]))


def _tag(item: Any) -> str:
    """ ".type" where that field was to tell which member of a union a value is, and does not."""
    name = str(item.get("ctx", {}).get("discriminator", "")).strip("'")
    return f".{name}" if name else ""


def _path(loc: tuple[int | str, ...], data: Any, missing: bool) -> str:
    """ "messages[0].content" from pydantic's location, without the names of union members."""
    path = ""
    for place, key in enumerate(loc):
        absent = missing and place == len(loc) - 1
        if isinstance(data, dict) and isinstance(key, str) and (key in data or absent):
            path += f".{key}" if path else key
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and 0 <= key < len(data):
            path += f"[{key}]"
            data = data[key]
    return path


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            break
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
    return depth

"""JSON in and out with msgspec: strict to read (no NaN, valid UTF-8), fast to write."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """JSON of plain values and msgspec Structs. Lone surrogates, which JSON text may smuggle in,
    become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_clean(msgspec.to_builtins(value)))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


class JsonResponse(Response):
    """A response whose body is JSON of plain values."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return encode(content)

"""How each protocol writes an error; which one it is is told by the path and the headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import Scope

if TYPE_CHECKING:
    from octavo.serving.errors import ApiError

Shape = Callable[["ApiError"], dict[str, Any]]

ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def openai_shape(error: ApiError) -> dict[str, Any]:
    """{"error": {message, type, param, code}}."""
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.param,
            "code": error.code,
        }
    }


def anthropic_shape(error: ApiError) -> dict[str, Any]:
    """{"type": "error", "error": {type, message}, "request_id"}."""
    other = "invalid_request_error" if error.status < 500 else "api_error"
    kind = ANTHROPIC_KINDS.get(error.status, other)
    return {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": error.request_id,
    }


def ollama_shape(error: ApiError) -> dict[str, Any]:
    """{"error": message}."""
    return {"error": error.message}


def shape_for(scope: Scope | None) -> Shape:
    """The shape of errors of a request; OpenAI's where no other protocol is meant."""
    if scope is None:
        return openai_shape
    path = scope["path"]
    if path == "/api" or path.startswith("/api/"):
        return ollama_shape
    return anthropic_shape if speaks_anthropic(path, Headers(scope=scope)) else openai_shape


def speaks_anthropic(path: str, headers: Headers) -> bool:
    """Whether the client expects Anthropic's shapes: by the path, and under /v1/models, which two
    protocols share, by the header that Anthropic's clients always send."""
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return True
    shared = path == "/v1/models" or path.startswith("/v1/models/")
    return shared and "anthropic-version" in headers

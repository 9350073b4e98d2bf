"""Errors as gRPC shows them: a status code, a message, and what else is known as metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc

from octavo.errors import OctavoError
from octavo.serving.errors import ApiError, translate
from octavo.serving.rpc.observe import noted

Context: TypeAlias = Any
"""A grpc.aio.ServicerContext; grpc has no types."""
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


@asynccontextmanager
async def told(context: Context) -> AsyncIterator[None]:
    """Errors raised within end the call with their status. The call has a log line."""
    async with noted(context):
        try:
            yield
        except ApiError as error:
            await abort(context, error)
        except OctavoError as error:
            await abort(context, translate(error))


async def abort(context: Context, error: ApiError) -> None:
    """End the call with an error."""
    known = {
        "param": error.param,
        "code": error.code,
        "retry-after": None if error.retry_after_s is None else str(error.retry_after_s),
    }
    metadata = tuple((key, _ascii(value)) for key, value in known.items() if value)
    code = CODES.get(error.status, grpc.StatusCode.INTERNAL)
    await context.abort(code, error.message, metadata)


def _ascii(text: str) -> str:
    """Metadata holds printable ASCII only."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)

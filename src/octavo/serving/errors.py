"""Errors as answers: a status, a field, headers, and the body in the shape of the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from octavo import errors
from octavo.serving.disconnect import ClientGoneError
from octavo.serving.error_shapes import openai_shape, shape_for
from octavo.serving.json import JsonResponse

RETRY_AFTER_S = 1


class ApiError(Exception):
    """An answer with an error status. param: the request field at fault; kind: OpenAI's type.
    headers: sent besides the usual ones. request_id: what the answer says it answers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.retry_after_s = param, code, retry_after_s
        self.headers = dict(headers or {})
        self.request_id: str | None = None

    def body(self) -> dict[str, Any]:
        """The JSON body in OpenAI's shape."""
        return openai_shape(self)

    def response(self, scope: Scope | None = None) -> Response:
        """The whole answer, in the shape of the protocol that the request of `scope` speaks."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if scope is not None:
            self.request_id = scope.get("state", {}).get("request_id")
        body = shape_for(scope)(self)
        return JsonResponse(body, status_code=self.status, headers=headers)


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, message, param=param, code=code)


def not_ready(phase: str, detail: str, retry_after_s: int = RETRY_AFTER_S) -> ApiError:
    """A 503 that says what the server is waiting for."""
    return ApiError(
        503,
        f"The engine is not ready ({phase}): {detail}",
        kind="server_error",
        code="engine_not_ready",
        retry_after_s=retry_after_s,
    )


def translate(error: errors.OctavoError, prompt_field: str = "prompt") -> ApiError:
    """The answer to an engine's error. prompt_field: what the protocol calls the prompt."""
    message = str(error)
    match error:
        case errors.InvalidParameterError():
            param = error.param
            if param == "prompt":
                param, message = prompt_field, prompt_field + message.removeprefix("prompt")
            return invalid(param, message)
        case errors.PromptTooLongError():
            return invalid(prompt_field, message, "context_length_exceeded")
        case errors.TemplateError():
            return invalid(prompt_field, message, "template_error")
        case errors.QueueFullError():
            return ApiError(
                429,
                message,
                kind="rate_limit_error",
                code="queue_full",
                retry_after_s=math.ceil(error.retry_after_s or RETRY_AFTER_S),
            )
        case errors.DeadlineError():
            status = 408 if error.queued else 504
            return ApiError(status, message, kind="server_error", code="deadline_exceeded")
        case errors.CrashingRequestError():
            return ApiError(500, message, kind="server_error", code="request_crashed")
        case errors.SlowReaderError():
            return ApiError(408, message, code="slow_reader")
        case errors.RequestError():
            return invalid(None, message)
        case errors.EngineError():
            return ApiError(
                503,
                message,
                kind="server_error",
                code="engine_error",
                retry_after_s=RETRY_AFTER_S,
            )
    return ApiError(500, message, kind="server_error", code="internal_error")


def install(app: FastAPI) -> None:
    """Every error of the app leaves in its protocol's shape."""

    async def any_error(request: Request, error: Exception) -> Response:
        return as_api_error(request, error).response(request.scope)

    async def client_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # nobody will read it

    for kind in (ApiError, errors.OctavoError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, any_error)
    app.add_exception_handler(ClientGoneError, client_gone)


def as_api_error(request: Request, error: Exception) -> ApiError:
    """The answer to any error that a handler lets through."""
    match error:
        case ApiError():
            return error
        case errors.OctavoError():
            return translate(error)
        case RequestValidationError():  # of parameters in the path or the query
            first = error.errors()[0]
            param = str(first["loc"][-1])
            return invalid(param, f"{param}: {first['msg']}")
        case HTTPException():
            message = f"{error.detail}: {request.method} {request.url.path}"
            return ApiError(error.status_code, message, headers=error.headers)
    message = "The server had an error while processing the request; its log says more."
    return ApiError(500, message, kind="server_error", code="internal_error")

"""The routes of the Anthropic protocol."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.serving.anthropic import answer
from octavo.serving.anthropic.conversation import conversation_of
from octavo.serving.anthropic.protocol import HARMLESS, IDLE, CountRequest, MessageRequest
from octavo.serving.anthropic.writer import MessageWriter, failed
from octavo.serving.body import keep_known, read_object, validate
from octavo.serving.context import Serving, serving_of
from octavo.serving.conversation import render, reply_to
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import EventStream, primed, unless_gone
from octavo.serving.json import JsonResponse
from octavo.serving.sse import named_events

Body = TypeVar("Body", bound=CountRequest)

router = APIRouter(prefix="/v1/messages", tags=["Anthropic"])


@router.post(
    "",
    openapi_extra=accepts(MessageRequest),
    responses=answers(answer.Message, stream=answer.Event, error=answer.Error),
)
async def create_message(request: Request) -> Response:
    """Answer a conversation."""
    serving = serving_of(request)
    body = await _parse(serving, request, MessageRequest)
    reply = await reply_to(serving, conversation_of(body))
    writer = MessageWriter(body, reply)
    if not body.stream:
        return JsonResponse(await unless_gone(request.receive, writer.whole()))
    return EventStream(await primed(request.receive, named_events(writer.events(), failed)))


@router.post(
    "/count_tokens",
    openapi_extra=accepts(CountRequest),
    responses=answers(answer.TokenCount, error=answer.Error),
)
async def count_tokens(request: Request) -> Response:
    """How many tokens a conversation has before its answer."""
    serving = serving_of(request)
    body = await _parse(serving, request, CountRequest)
    _, ids = await render(serving, conversation_of(body))
    return JsonResponse(answer.TokenCount(len(ids)))


async def _parse(serving: Serving, request: Request, model: type[Body]) -> Body:
    data: dict[str, Any] = await read_object(request, serving.options.max_body_bytes)
    body = validate(model, keep_known(data, model.model_fields, HARMLESS, IDLE))
    serving.check_model(body.model)
    serving.check_ready("generate")
    return body

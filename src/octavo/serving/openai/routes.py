"""The routes of the OpenAI protocol."""

from __future__ import annotations

from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.serving import anthropic
from octavo.serving.body import read_object, validate
from octavo.serving.context import Serving, serving_of
from octavo.serving.conversation import reply_to
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import EventStream, primed, unless_gone
from octavo.serving.error_shapes import speaks_anthropic
from octavo.serving.json import JsonResponse
from octavo.serving.openai import answer
from octavo.serving.openai.chat import ChatFormat, conversation_of
from octavo.serving.openai.chat_protocol import ChatRequest
from octavo.serving.openai.completions import CompletionFormat, completion_generation
from octavo.serving.openai.events import event_stream
from octavo.serving.openai.fields import drop_idle_fields
from octavo.serving.openai.models import list_models, show_model
from octavo.serving.openai.protocol import CompletionRequest
from octavo.serving.openai.sampling import SamplingFields
from octavo.serving.record import add_timings, current_record

Fields = TypeVar("Fields", bound=SamplingFields)

router = APIRouter(prefix="/v1", tags=["OpenAI"])


@router.post(
    "/chat/completions",
    openapi_extra=accepts(ChatRequest),
    responses=answers(answer.ChatCompletion, stream=answer.ChatChunk),
)
async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    serving = serving_of(request)
    body = await _parse(serving, request, ChatRequest)
    reply = await reply_to(serving, conversation_of(body))
    return await _answer(request, ChatFormat(serving, body, reply), body)


@router.post(
    "/completions",
    openapi_extra=accepts(CompletionRequest),
    responses=answers(answer.Completion, stream=answer.Completion),
)
async def completions(request: Request) -> Response:
    """Continue one or more texts."""
    serving = serving_of(request)
    body = await _parse(serving, request, CompletionRequest)
    generation = await completion_generation(serving, body)
    return await _answer(request, CompletionFormat(serving, body, generation), body)


@router.get("/models", responses=answers(answer.ModelList))
async def models(request: Request) -> Response:
    """The models this server answers for. Anthropic's clients get them in their shape."""
    if speaks_anthropic(request.url.path, request.headers):
        return JsonResponse(anthropic.list_models(serving_of(request)))
    return JsonResponse(list_models(serving_of(request)))


@router.get("/models/{name:path}", responses=answers(answer.Model))
async def model(request: Request, name: str) -> Response:
    """One of them."""
    if speaks_anthropic(request.url.path, request.headers):
        return JsonResponse(anthropic.show_model(serving_of(request), name))
    return JsonResponse(show_model(serving_of(request), name))


async def _parse(serving: Serving, request: Request, model: type[Fields]) -> Fields:
    data = await read_object(request, serving.options.max_body_bytes)
    body = validate(model, drop_idle_fields(data, model.model_fields))
    serving.check_model(body.model)
    serving.check_ready("generate")
    record = current_record()
    if body.return_metrics and record is not None:
        record.ask_for_timings()
    return body


async def _answer(
    request: Request, format: ChatFormat | CompletionFormat, body: SamplingFields
) -> Response:
    if not body.streams:
        whole = await unless_gone(request.receive, format.whole())
        return JsonResponse(add_timings(whole))
    events = event_stream(format, body.wants_usage, body.wants_running_usage)
    first = await primed(request.receive, events)
    return EventStream(first, shortcut=format.generation.shortcut)

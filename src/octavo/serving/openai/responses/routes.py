"""The routes of the Responses protocol."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.serving.body import keep_known, read_object, validate
from octavo.serving.context import Serving, serving_of
from octavo.serving.conversation import Conversation, render, reply_to
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import EventStream, primed, unless_gone
from octavo.serving.errors import ApiError, invalid
from octavo.serving.json import JsonResponse
from octavo.serving.openai.responses import answer, events
from octavo.serving.openai.responses.conversation import conversation_of, truncate
from octavo.serving.openai.responses.desk import desk_of
from octavo.serving.openai.responses.items import ITEMS, with_types
from octavo.serving.openai.responses.protocol import HARMLESS, IDLE, CountRequest, ResponseRequest
from octavo.serving.openai.responses.store import Stored
from octavo.serving.openai.responses.writer import ResponseWriter
from octavo.serving.sse import named_events

Body = TypeVar("Body", bound=CountRequest)
MAX_PAGE = 100

router = APIRouter(prefix="/v1/responses", tags=["OpenAI"])


@router.post(
    "",
    openapi_extra=accepts(ResponseRequest),
    responses=answers(answer.Response, stream=events.Event),
)
async def create_response(request: Request) -> Response:
    """Answer a conversation, or go on from an earlier response."""
    serving, desk = serving_of(request), desk_of(request)
    body = await _parse(serving, request, ResponseRequest)
    _check_together(body)
    previous = desk.previous(body.previous_response_id)
    conversation = await _conversation(serving, body, previous)
    writer = ResponseWriter(serving, body, await reply_to(serving, conversation))
    stored = desk.new(body, writer.response, previous)
    if body.background:
        return JsonResponse(desk.start(stored, writer))
    if not body.stream:
        response = await unless_gone(request.receive, writer.whole())
        desk.keep(stored)
        return JsonResponse(response)
    stream = named_events(desk.keeping(stored, writer), writer.failed)
    return EventStream(await primed(request.receive, stream))


@router.post(
    "/input_tokens", openapi_extra=accepts(CountRequest), responses=answers(answer.TokenCount)
)
async def count_tokens(request: Request) -> Response:
    """How many tokens a conversation has before its answer."""
    serving = serving_of(request)
    body = await _parse(serving, request, CountRequest)
    previous = desk_of(request).previous(body.previous_response_id)
    _, ids = await render(serving, await _conversation(serving, body, previous))
    return JsonResponse(answer.TokenCount(len(ids)))


@router.post("/compact", include_in_schema=False)
async def compact() -> Response:
    """Part of the protocol, but not of this server."""
    raise ApiError(404, "Conversations cannot be compacted by this server.", code="unsupported")


@router.get("/{response_id}", responses=answers(answer.Response))
async def show_response(
    request: Request, response_id: str, stream: Literal["true", "false"] = "false"
) -> Response:
    """A response that was kept. Streams cannot be taken up again."""
    if stream == "true":
        raise invalid("stream", "stream: responses that were kept cannot be streamed again")
    return JsonResponse(desk_of(request).find(response_id).response)


@router.delete("/{response_id}", responses=answers(answer.Deleted))
async def delete_response(request: Request, response_id: str) -> Response:
    """Forget a response; one that is being worked on is cancelled."""
    desk_of(request).delete(response_id)
    return JsonResponse(answer.Deleted(response_id))


@router.post("/{response_id}/cancel", responses=answers(answer.Response))
async def cancel_response(request: Request, response_id: str) -> Response:
    """Stop the work on a response that runs in the background."""
    return JsonResponse(desk_of(request).cancel(response_id))


@router.get("/{response_id}/input_items", responses=answers(answer.ItemList))
async def list_items(
    request: Request,
    response_id: str,
    limit: int = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
) -> Response:
    """The items that a response was asked for with."""
    if not 1 <= limit <= MAX_PAGE:
        raise invalid("limit", f"limit: got {limit}, expected from 1 to {MAX_PAGE}")
    items = desk_of(request).find(response_id).input
    items = items if order == "asc" else items[::-1]
    return JsonResponse(_page(items, limit, after))


def _page(items: list[dict[str, Any]], limit: int, after: str | None) -> answer.ItemList:
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise invalid("after", f"after: no item has the id {after!r}")
    rest = items if after is None else items[ids.index(after) + 1 :]
    page = rest[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return answer.ItemList(page, first, last, len(rest) > limit)


def _check_together(body: ResponseRequest) -> None:
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "stream_options: only allowed when stream is true")
    if body.background and body.stream:
        raise invalid("background", "background: is not supported together with stream")
    if body.background and body.store is False:
        raise invalid("background", "background: needs store to be true")


async def _conversation(
    serving: Serving, body: CountRequest, previous: Stored | None
) -> Conversation:
    earlier = [] if previous is None else ITEMS.validate_python(previous.history)
    conversation = conversation_of(body, earlier)
    if body.truncation == "auto":
        await truncate(serving, conversation)
    return conversation


async def _parse(serving: Serving, request: Request, model: type[Body]) -> Body:
    data = with_types(await read_object(request, serving.options.max_body_bytes))
    body = validate(model, keep_known(data, model.model_fields, HARMLESS, IDLE))
    serving.check_model(body.model or serving.names[0])
    serving.check_ready("generate")
    return body

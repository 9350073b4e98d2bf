"""The routes of the Ollama protocol."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from octavo import __version__
from octavo.decoding.pooling import Pooling
from octavo.serving.body import keep_known, read_object, validate
from octavo.serving.context import Serving, serving_of
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import EventStream, primed, unless_gone
from octavo.serving.embedding import EmbeddingCall
from octavo.serving.embedding import embed as embed_all
from octavo.serving.errors import invalid
from octavo.serving.json import JsonResponse, encode
from octavo.serving.ollama import answer
from octavo.serving.ollama.catalog import LATEST, Catalog
from octavo.serving.ollama.conversation import chat_reply, generate_reply
from octavo.serving.ollama.options import drop_idle_options
from octavo.serving.ollama.protocol import (
    HARMLESS,
    IDLE,
    ChatRequest,
    EmbeddingsRequest,
    EmbedRequest,
    GenerateRequest,
    ModelRequest,
)
from octavo.serving.ollama.writer import NDJSON, Kind, OllamaWriter, timestamp
from octavo.serving.reply import Reply
from octavo.serving.storage import owner_of

Body = TypeVar("Body", bound=BaseModel)

router = APIRouter(tags=["Ollama"])


@router.head("/", include_in_schema=False)
async def alive() -> Response:
    """How Ollama's clients ask whether a server is there."""
    return Response(media_type="text/plain")


@router.post(
    "/api/chat",
    openapi_extra=accepts(ChatRequest),
    responses=answers(answer.Chat, stream=answer.Chat, media=NDJSON, error=answer.Error),
)
async def chat(request: Request) -> Response:
    """Answer a conversation."""
    serving, body = await _parse(request, ChatRequest)
    if not body.messages:
        return JsonResponse(_loaded("chat", body.model))
    reply = await chat_reply(serving, body)
    return await _answer(request, "chat", body, reply)


@router.post(
    "/api/generate",
    openapi_extra=accepts(GenerateRequest),
    responses=answers(answer.Generated, stream=answer.Generated, media=NDJSON, error=answer.Error),
)
async def generate(request: Request) -> Response:
    """Answer a prompt, or continue a raw one."""
    serving, body = await _parse(request, GenerateRequest)
    if not body.prompt:
        return JsonResponse(_loaded("generate", body.model))
    reply = await generate_reply(serving, body)
    return await _answer(request, "generate", body, reply)


@router.get("/api/tags", responses=answers(answer.Models, error=answer.Error))
async def tags(request: Request) -> Response:
    """The models this server answers for."""
    return JsonResponse(await _catalog(request).tags())


@router.get("/api/ps", responses=answers(answer.Models, error=answer.Error))
async def running(request: Request) -> Response:
    """The models that are loaded: the same."""
    return JsonResponse(await _catalog(request).running())


@router.post(
    "/api/show",
    openapi_extra=accepts(ModelRequest),
    responses=answers(answer.Shown, error=answer.Error),
)
async def show(request: Request) -> Response:
    """What is known about a model."""
    _, body = await _parse_model(request)
    return JsonResponse(await _catalog(request).show(bool(body.verbose)))


@router.post(
    "/api/pull",
    openapi_extra=accepts(ModelRequest),
    responses=answers(answer.Status, stream=answer.Status, media=NDJSON, error=answer.Error),
)
async def pull(request: Request) -> Response:
    """Says that the model served is there; others cannot be fetched while the server runs."""
    _, body = await _parse_model(request)
    done = {"status": "success"}
    if body.stream is False:
        return JsonResponse(done)
    return Response(encode(done) + b"\n", media_type=NDJSON)


@router.get("/api/version", responses=answers(answer.Version, error=answer.Error))
async def version() -> Response:
    """The server's version."""
    return JsonResponse({"version": __version__})


@router.post(
    "/api/embed",
    openapi_extra=accepts(EmbedRequest),
    responses=answers(answer.Embedded, error=answer.Error),
)
async def embed(request: Request) -> Response:
    """Vectors of texts."""
    began_ns = time.monotonic_ns()
    serving, body = await _parse(request, EmbedRequest)
    texts = [body.input] if isinstance(body.input, str) else body.input
    pooling = Pooling(dimensions=body.dimensions)
    truncate = None if body.truncate is False else 0
    call = EmbeddingCall(list(texts), pooling, truncate, tenant=owner_of(request))
    vectors, generation = await unless_gone(request.receive, embed_all(serving, call))
    return JsonResponse(
        {
            "model": body.model,
            "embeddings": [vector.tolist() for vector in vectors],
            "total_duration": time.monotonic_ns() - began_ns,
            "load_duration": 0,
            "prompt_eval_count": generation.num_prompt_tokens,
        }
    )


@router.post(
    "/api/embeddings",
    openapi_extra=accepts(EmbeddingsRequest),
    responses=answers(answer.OldEmbedded, error=answer.Error),
)
async def embeddings(request: Request) -> Response:
    """The vector of a text, in the older form: not normalized."""
    serving, body = await _parse(request, EmbeddingsRequest)
    pooling = Pooling(normalize=False)
    call = EmbeddingCall([body.prompt], pooling, 0, tenant=owner_of(request), field="prompt")
    (vector,), _ = await unless_gone(request.receive, embed_all(serving, call))
    return JsonResponse({"embedding": vector.tolist()})


_TASKS: dict[type[Any], str] = {
    ChatRequest: "generate",
    GenerateRequest: "generate",
    EmbedRequest: "embed",
    EmbeddingsRequest: "embed",
}


async def _parse(request: Request, model: type[Body]) -> tuple[Serving, Body]:
    serving = serving_of(request)
    data = await read_object(request, serving.options.max_body_bytes)
    kept = keep_known(drop_idle_options(data), model.model_fields, HARMLESS, IDLE)
    body = validate(model, kept)
    _check_model(serving, getattr(body, "model", None) or getattr(body, "name", None))
    serving.check_ready(_TASKS.get(model, ""))
    return serving, body


async def _parse_model(request: Request) -> tuple[Serving, ModelRequest]:
    return await _parse(request, ModelRequest)


def _check_model(serving: Serving, name: str | None) -> None:
    """Names may end with ":latest"."""
    if not name:
        raise invalid("model", "model: is missing")
    serving.check_model(name if name in serving.all_names else name.removesuffix(LATEST))


async def _answer(
    request: Request, kind: Kind, body: ChatRequest | GenerateRequest, reply: Reply
) -> Response:
    writer = OllamaWriter(serving_of(request), kind, body.model, body.num_logprobs, reply)
    if not body.streams:
        return JsonResponse(await unless_gone(request.receive, writer.whole()))
    return EventStream(await primed(request.receive, writer.lines()), NDJSON)


def _loaded(kind: Kind, model: str) -> dict[str, Any]:
    said = {"role": "assistant", "content": ""}
    empty: dict[str, Any] = {"message": said} if kind == "chat" else {"response": ""}
    head = {"model": model, "created_at": timestamp()}
    return {**head, **empty, "done": True, "done_reason": "load"}


def _catalog(request: Request) -> Catalog:
    state = request.app.state
    if not hasattr(state, "ollama_catalog"):
        state.ollama_catalog = Catalog(serving_of(request))
    found: Catalog = state.ollama_catalog
    return found

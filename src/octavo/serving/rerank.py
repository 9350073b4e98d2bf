"""POST /v1/rerank and /v1/score, in the shapes that vLLM, Jina and Cohere share."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from octavo.engine.pairs import align
from octavo.errors import InvalidParameterError
from octavo.records import replace
from octavo.serving.body import StrictModel, read_object, validate
from octavo.serving.context import Serving, serving_of
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import unless_gone
from octavo.serving.embedding import truncation
from octavo.serving.errors import invalid
from octavo.serving.generation import new_id
from octavo.serving.json import JsonResponse
from octavo.serving.openai.fields import drop_idle_fields
from octavo.serving.scoring import ScoreCall, score

Body = TypeVar("Body", bound="PairFields")
router = APIRouter(tags=["Rerank"])


class PairFields(StrictModel):
    """What both bodies have. use_activation: false gives the model's plain number."""

    model: str
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    use_activation: bool | None = None
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)

    def call(self, request: Request, pairs: list[tuple[str, str]], *fields: str) -> ScoreCall:
        """What is asked for. fields: what the body calls first and second texts."""
        return ScoreCall(
            pairs=pairs,
            truncate=truncation(self.truncate_prompt_tokens),
            activation=self.use_activation is not False,
            priority=self.priority or 0,
            tenant=str(getattr(request.state, "tenant", "")),
            first_field=fields[0],
            field=fields[1],
        )


class TextDocument(StrictModel):
    """A document as an object."""

    text: str


class RerankRequest(PairFields):
    """Body of POST /v1/rerank. top_n: how many results, the best first; 0 for all."""

    query: str
    documents: list[str | TextDocument]
    top_n: int | None = Field(default=None, ge=0)
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = Field(default=None, ge=1)

    def texts(self) -> list[str]:
        """The documents as texts."""
        return [text if isinstance(text, str) else text.text for text in self.documents]


class ScoreRequest(PairFields):
    """Body of POST /v1/score: one first text for all second ones, or as many."""

    text_1: str | list[str]
    text_2: str | list[str]

    def pairs(self) -> list[tuple[str, str]]:
        """First and second texts. Raises ApiError."""
        first, second = (
            [text] if isinstance(text, str) else text for text in (self.text_1, self.text_2)
        )
        try:
            return align(first, second)
        except InvalidParameterError as error:
            raise invalid("text_1", str(error)) from None


class Document(msgspec.Struct):
    """A document that was ranked."""

    text: str


class Ranked(msgspec.Struct, omit_defaults=True):
    """A document's place in the request and how relevant it is."""

    index: int
    relevance_score: float
    document: Document | None = None


class PairUsage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(msgspec.Struct):
    """Answer of POST /v1/rerank, the most relevant document first."""

    id: str
    model: str
    results: list[Ranked]
    usage: PairUsage


class ScoreObject(msgspec.Struct):
    """One pair's score."""

    index: int
    object: str
    score: float


class ScoreAnswer(msgspec.Struct):
    """Answer of POST /v1/score, in the order of the pairs."""

    id: str
    object: str
    created: int
    model: str
    data: list[ScoreObject]
    usage: PairUsage


@router.post("/rerank", openapi_extra=accepts(RerankRequest), responses=answers(RerankAnswer))
@router.post("/v1/rerank", openapi_extra=accepts(RerankRequest), responses=answers(RerankAnswer))
@router.post("/v2/rerank", openapi_extra=accepts(RerankRequest), responses=answers(RerankAnswer))
async def rerank(request: Request) -> Response:
    """Documents by their relevance to a query."""
    serving, body = await _parse(request, RerankRequest)
    texts = body.texts()
    call = body.call(request, [(body.query, text) for text in texts], "query", "documents")
    call = replace(call, second_limit=body.max_tokens_per_doc)
    scores, count = await unless_gone(request.receive, score(serving, call))
    order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
    shown = body.return_documents is not False
    return JsonResponse(
        RerankAnswer(
            new_id("rerank"),
            body.model,
            [
                Ranked(index, scores[index], Document(texts[index]) if shown else None)
                for index in order[: body.top_n or len(order)]
            ],
            PairUsage(count, count),
        )
    )


@router.post("/score", openapi_extra=accepts(ScoreRequest), responses=answers(ScoreAnswer))
@router.post("/v1/score", openapi_extra=accepts(ScoreRequest), responses=answers(ScoreAnswer))
async def scores_of_pairs(request: Request) -> Response:
    """How well texts go together, pair by pair."""
    serving, body = await _parse(request, ScoreRequest)
    call = body.call(request, body.pairs(), "text_1", "text_2")
    scores, count = await unless_gone(request.receive, score(serving, call))
    data = [ScoreObject(index, "score", one) for index, one in enumerate(scores)]
    usage = PairUsage(count, count)
    id, created = new_id("score"), int(time.time())
    return JsonResponse(ScoreAnswer(id, "list", created, body.model, data, usage))


async def _parse(request: Request, model: type[Body]) -> tuple[Serving, Body]:
    serving = serving_of(request)
    data = await read_object(request, serving.options.max_body_bytes)
    body = validate(model, drop_idle_fields(data, model.model_fields))
    serving.check_model(body.model)
    serving.check_ready("score")
    return serving, body

"""POST /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import Field
from starlette.responses import Response

from octavo.decoding.pooling import Pooling, PoolingKind
from octavo.serving.body import StrictModel, read_object, validate
from octavo.serving.context import serving_of
from octavo.serving.describe import accepts, answers
from octavo.serving.disconnect import unless_gone
from octavo.serving.embedding import EmbeddingCall, embed, truncation
from octavo.serving.generation import new_id
from octavo.serving.json import JsonResponse
from octavo.serving.openai.fields import drop_idle_fields

router = APIRouter(prefix="/v1", tags=["OpenAI"])


class EmbeddingRequest(StrictModel):
    """Body of POST /v1/embeddings. The last six fields are beyond OpenAI."""

    model: str
    input: str | list[int] | list[str] | list[list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    add_special_tokens: bool | None = None
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    normalize: bool | None = None
    pooling: PoolingKind | None = None
    prompt_name: str | None = None

    def inputs(self) -> list[Any]:
        """The inputs as a list."""
        given: Any = self.input
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            given = [given]
        return list(given)

    def call(self, tenant: str) -> EmbeddingCall:
        """What is asked for. Raises ApiError or InvalidParameterError naming the field."""
        return EmbeddingCall(
            inputs=self.inputs(),
            pooling=Pooling(self.pooling, self.dimensions, self.normalize),
            truncate=truncation(self.truncate_prompt_tokens),
            add_special_tokens=self.add_special_tokens is not False,
            priority=self.priority or 0,
            tenant=tenant,
            prompt_name=self.prompt_name,
        )


class EmbeddingObject(msgspec.Struct):
    """One vector: numbers, or with encoding_format base64 their float32 bytes."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct):
    """Answer of POST /v1/embeddings."""

    id: str
    object: str
    model: str
    data: list[EmbeddingObject]
    usage: EmbeddingUsage


@router.post(
    "/embeddings", openapi_extra=accepts(EmbeddingRequest), responses=answers(EmbeddingList)
)
async def embeddings(request: Request) -> Response:
    """Vectors of texts."""
    serving = serving_of(request)
    data = await read_object(request, serving.options.max_body_bytes)
    body = validate(EmbeddingRequest, drop_idle_fields(data, EmbeddingRequest.model_fields))
    serving.check_model(body.model)
    serving.check_ready("embed")
    call = body.call(str(getattr(request.state, "tenant", "")))
    vectors, generation = await unless_gone(request.receive, embed(serving, call))
    count = generation.num_prompt_tokens
    is_base64 = body.encoding_format == "base64"
    return JsonResponse(
        {
            "id": new_id("embd"),
            "object": "list",
            "model": body.model,
            "data": [
                {"object": "embedding", "index": index, "embedding": _shown(vector, is_base64)}
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
    )


def _shown(vector: NDArray[np.float32], is_base64: bool) -> list[float] | str:
    return base64.b64encode(vector.tobytes()).decode() if is_base64 else vector.tolist()

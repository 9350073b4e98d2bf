"""Scores of pairs of texts for every route: by a cross-encoder, or by the cosine of embeddings."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.decoding.pooling import Pooling
from octavo.engine.embedding import EMBED_ONLY
from octavo.engine.pairs import cosine, score_of
from octavo.engine.types import Request
from octavo.serving.context import Serving, off_loop
from octavo.serving.embedding import MAX_INPUTS, EmbeddingCall, embed
from octavo.serving.errors import invalid
from octavo.serving.generation import Generation, new_id


@dataclass(frozen=True)
class ScoreCall:
    """pairs: first and second texts. truncate: how many tokens of each pair to use at most; 0 for
    as many as the context holds, None to refuse what is too long. second_limit: tokens of a second
    text to use at most. activation: whether the model's own activation makes a score of what it
    gives. first_field, field: what the protocol calls first and second texts; errors name them."""

    pairs: list[tuple[str, str]]
    truncate: int | None = None
    second_limit: int | None = None
    activation: bool = True
    priority: int = 0
    tenant: str = ""
    first_field: str = "query"
    field: str = "documents"


async def score(serving: Serving, call: ScoreCall) -> tuple[list[float], int]:
    """The scores in order, and the number of tokens read. Raises ApiError or OctavoError naming
    what is wrong; cancelling frees everything."""
    if not 0 < len(call.pairs) <= MAX_INPUTS:
        message = f"{call.field}: has {len(call.pairs)} entries, expected 1 to {MAX_INPUTS}"
        raise invalid(call.field, message)
    if serving.task == "embed":
        return await _by_angle(serving, call)
    requests = [await _request(serving, call, *pair) for pair in call.pairs]
    generation = Generation(serving, requests, call.field)
    found: dict[int, float] = {}
    async with aclosing(generation.deltas()) as deltas:
        async for index, delta in deltas:
            if delta.embedding is not None:
                found[index] = float(np.frombuffer(delta.embedding, np.float32)[0])
    info = serving.client.ready_info
    sigmoid = call.activation and (info is None or info.sigmoid)
    scores = [score_of(found[index], sigmoid) for index in range(len(requests))]
    return scores, generation.num_prompt_tokens


async def _request(serving: Serving, call: ScoreCall, first: str, second: str) -> Request:
    tokenizer = serving.need_tokenizer(call.field)
    limit = None if call.truncate is None else call.truncate or serving.max_model_len

    def encode() -> tuple[list[int], int]:
        return tokenizer.encode_pair(first, second, limit, call.second_limit)

    ids, start = await off_loop(len(first) + len(second), encode)
    return Request(
        request_id=new_id("score"),
        prompt_ids=ids,
        params=EMBED_ONLY,
        priority=call.priority,
        arrival_s=time.monotonic(),
        use_prefix_cache=False,
        tenant=call.tenant,
        pair_start=start,
    )


async def _by_angle(serving: Serving, call: ScoreCall) -> tuple[list[float], int]:
    if call.second_limit is not None:
        name = "max_tokens_per_doc"
        raise invalid(name, f"{name}: is for models that read query and document together")
    fields, count = (call.first_field, call.field), 0
    sides: list[dict[str, NDArray[np.float32]]] = []
    for field, texts in zip(fields, zip(*call.pairs, strict=True), strict=True):
        once = list(dict.fromkeys(texts))
        part = EmbeddingCall(
            inputs=[*once],
            pooling=Pooling(),
            truncate=call.truncate,
            priority=call.priority,
            tenant=call.tenant,
            field=field,
        )
        vectors, generation = await embed(serving, part)
        sides.append(dict(zip(once, vectors, strict=True)))
        count += generation.num_prompt_tokens
    first, second = sides
    return [cosine(first[a], second[b]) for a, b in call.pairs], count

"""Embeddings for every protocol: texts or token ids in, vectors out."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.decoding.pooling import Pooling
from octavo.engine.embedding import EMBED_ONLY
from octavo.engine.pairs import prompted
from octavo.engine.types import Request
from octavo.errors import InvalidParameterError
from octavo.serving.context import Serving, off_loop
from octavo.serving.errors import invalid
from octavo.serving.generation import Generation, new_id

Text = str | list[int]
MAX_INPUTS = 2048


@dataclass(frozen=True)
class EmbeddingCall:
    """inputs: texts or token ids. prompt_name: see `LLM.embed`. truncate: how many tokens of each
    to use at most (the first ones, and the model's end token); 0 for as many as the context holds,
    None to refuse what is too long. field: what the protocol calls the inputs; errors name it."""

    inputs: list[Text]
    pooling: Pooling
    truncate: int | None = None
    add_special_tokens: bool = True
    priority: int = 0
    tenant: str = ""
    field: str = "input"
    prompt_name: str | None = None


async def embed(
    serving: Serving, call: EmbeddingCall
) -> tuple[list[NDArray[np.float32]], Generation]:
    """The vectors in order, and the generation that has the token counts. Raises ApiError or
    OctavoError naming what is wrong; cancelling frees everything."""
    if not 0 < len(call.inputs) <= MAX_INPUTS:
        message = f"{call.field}: has {len(call.inputs)} entries, expected 1 to {MAX_INPUTS}"
        raise invalid(call.field, message)
    requests = [
        Request(
            request_id=new_id("embd"),
            prompt_ids=await _token_ids(serving, call, text),
            params=EMBED_ONLY,
            prompt=text if isinstance(text, str) else None,
            priority=call.priority,
            arrival_s=time.monotonic(),
            use_prefix_cache=False,
            tenant=call.tenant,
            pooling=call.pooling,
        )
        for text in call.inputs
    ]
    generation = Generation(serving, requests, call.field)
    found: dict[int, NDArray[np.float32]] = {}
    async with aclosing(generation.deltas()) as deltas:
        async for index, delta in deltas:
            if delta.embedding is not None:
                found[index] = np.frombuffer(delta.embedding, np.float32)
    return [found[index] for index in range(len(requests))], generation


def _prompted(serving: Serving, call: EmbeddingCall, text: str) -> str:
    info, name = serving.client.ready_info, call.prompt_name
    if info is None:
        return text
    try:
        return prompted(text, info.prompts, info.default_prompt if name is None else name)
    except InvalidParameterError as error:
        raise invalid("prompt_name", str(error)) from None


async def _token_ids(serving: Serving, call: EmbeddingCall, text: Text) -> list[int]:
    if isinstance(text, str):
        text = _prompted(serving, call, text)
        tokenizer = serving.need_tokenizer(call.field)

        def encode() -> list[int]:
            return tokenizer.encode(text, add_special_tokens=call.add_special_tokens)

        ids = await off_loop(len(text), encode)
    else:
        ids = text
        if any(not 0 <= token < 2**31 for token in ids):
            message = f"{call.field}: holds a token id that is not in the vocabulary"
            raise invalid(call.field, message)
    limit = None if call.truncate is None else call.truncate or serving.max_model_len
    if limit is None or len(ids) <= limit:
        return ids
    return ids[:limit] if serving.tokenizer is None else serving.tokenizer.cut(ids, limit)


def truncation(asked: int | None) -> int | None:
    """vLLM's truncate_prompt_tokens as `EmbeddingCall.truncate`: -1 means what fits. Raises
    ApiError for 0."""
    if asked == 0:
        message = "truncate_prompt_tokens: got 0, expected at least 1, or -1 for what fits"
        raise invalid("truncate_prompt_tokens", message)
    return 0 if asked == -1 else asked

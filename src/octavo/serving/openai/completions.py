"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from octavo.engine.types import Delta, Request, TokenLogprobs
from octavo.serving.context import Serving, off_loop
from octavo.serving.errors import invalid
from octavo.serving.generation import Choice, Generation, collect, new_id
from octavo.serving.openai.logprobs import TokenTexts, completion_logprobs
from octavo.serving.openai.protocol import CompletionRequest
from octavo.serving.openai.usage import FINGERPRINT, usage

MAX_CHOICES = 256


async def completion_generation(serving: Serving, body: CompletionRequest) -> Generation:
    """The engine requests of a body. Raises ApiError or OctavoError naming what is wrong."""
    params = body.sampling_params()
    prompts = body.prompts()
    if len(prompts) * params.n > MAX_CHOICES:
        raise invalid("n", f"n: {len(prompts)} prompts times {params.n} exceed {MAX_CHOICES}")
    requests = []
    for prompt in prompts:
        ids = await _token_ids(serving, prompt)
        requests.append(
            Request(
                request_id=new_id("cmpl"),
                prompt_ids=ids,
                params=params,
                prompt=prompt if isinstance(prompt, str) else None,
                priority=body.priority or 0,
                arrival_s=time.monotonic(),
                cache_salt=body.cache_salt or "",
            )
        )
    return Generation(serving, requests, "prompt")


async def _token_ids(serving: Serving, prompt: str | list[int]) -> list[int]:
    if isinstance(prompt, list):
        if any(not -(2**31) <= token < 2**31 for token in prompt):
            raise invalid("prompt", "prompt: holds a token id that is not in the vocabulary")
        return prompt
    tokenizer = serving.need_tokenizer("prompt")
    return await off_loop(len(prompt), tokenizer.encode, prompt)


class CompletionFormat:
    """Writes choices of one answer, whole or in chunks."""

    def __init__(self, serving: Serving, body: CompletionRequest, generation: Generation) -> None:
        self._id = generation.requests[0].request_id
        self._model = body.model
        self._created = int(time.time())
        self._texts = TokenTexts(serving.tokenizer)
        self._num_top = body.logprobs
        self._generation = generation
        self._n = generation.requests[0].params.n
        self._echo = bool(body.echo)
        self._generates = body.max_tokens != 0
        self._tokenizer = serving.tokenizer
        self._offsets: dict[int, int] = {}  # characters of each choice that chunks have shown

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share."""
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
        }

    @property
    def generation(self) -> Generation:
        """Where the token counts are."""
        return self._generation

    async def choices(self) -> AsyncGenerator[dict[str, Any]]:
        """Choices of chunks as they come, with the prompt before each if it is echoed."""
        async with aclosing(self._generation.deltas()) as deltas:
            async for index, delta in deltas:
                shown = self._chunk(index, delta)
                if shown["text"] or shown["finish_reason"] or delta.token_ids:
                    yield shown

    def _chunk(self, index: int, delta: Delta) -> dict[str, Any]:
        choice = Choice()
        choice.add(delta)
        if not self._generates:
            choice.text, choice.token_ids, choice.logprobs = "", [], []
        first = index not in self._offsets
        offset = self._offsets.get(index, 0)
        shown = self._choice(index, choice, offset, with_prompt=first and self._echo)
        self._offsets[index] = offset + self._length(index, choice, first and self._echo)
        return shown

    async def whole(self) -> dict[str, Any]:
        """The whole answer."""
        choices = await collect(self._generation)
        if not self._generates:
            for choice in choices:
                choice.text, choice.token_ids, choice.logprobs = "", [], []
        return {
            **self.head,
            "choices": [self._choice(i, c, 0, self._echo) for i, c in enumerate(choices)],
            "usage": usage(self._generation),
        }

    def _prompt_text(self, request: Request) -> str:
        if request.prompt is not None:
            return request.prompt
        return "" if self._tokenizer is None else self._tokenizer.decode(request.prompt_ids)

    def _length(self, index: int, choice: Choice, with_prompt: bool) -> int:
        ids = self._prompt_ids(index) if with_prompt else []
        return sum(len(self._texts.text(i)) for i in (*ids, *choice.token_ids))

    def _prompt_ids(self, index: int) -> list[int]:
        return self._generation.requests[index // self._n].prompt_ids

    def _choice(self, index: int, choice: Choice, offset: int, with_prompt: bool) -> dict[str, Any]:
        text = choice.text
        ids, positions = choice.token_ids, list[TokenLogprobs | None](choice.logprobs)
        if with_prompt:
            place = index // self._n
            text = self._prompt_text(self._generation.requests[place]) + text
            ids = [*self._prompt_ids(index), *ids]
            positions = [*self._generation.prompt_logprobs.get(place, ()), *positions]
        logprobs = None
        if self._num_top is not None:
            logprobs = completion_logprobs(ids, positions, self._num_top, self._texts, offset)
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

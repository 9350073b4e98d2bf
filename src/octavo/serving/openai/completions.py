"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from octavo.engine.types import Delta, Request, TokenLogprobs
from octavo.records import replace
from octavo.serving.context import Serving, off_loop
from octavo.serving.errors import invalid
from octavo.serving.generation import Choice, Generation, collect, new_id
from octavo.serving.openai.logprobs import TokenTexts, completion_logprobs, mean_logprob, scored
from octavo.serving.openai.protocol import CompletionRequest
from octavo.serving.openai.usage import FINGERPRINT, usage
from octavo.serving.prompts import infill

MAX_CHOICES = 256


async def completion_generation(serving: Serving, body: CompletionRequest) -> Generation:
    """The engine requests of a body. Raises ApiError or OctavoError naming what is wrong."""
    params = body.sampling_params()
    prompts = body.prompts()
    if len(prompts) * params.n > MAX_CHOICES:
        raise invalid("n", f"n: {len(prompts)} prompts times {params.n} exceed {MAX_CHOICES}")
    first_id = new_id("cmpl", body.request_id)
    requests = []
    for place, prompt in enumerate(prompts):
        ids, stops = await _token_ids(serving, body, prompt)
        requests.append(
            Request(
                request_id=f"{first_id}-{place}" if place else first_id,
                prompt_ids=body.prompt_options(True).cut(serving, ids, params.max_tokens),
                params=replace(params, stop_token_ids=(*params.stop_token_ids, *stops)),
                prompt=prompt if isinstance(prompt, str) else None,
                priority=body.priority or 0,
                arrival_s=time.monotonic(),
                cache_salt=body.cache_salt or "",
            )
        )
    return Generation(serving, requests, "prompt")


async def _token_ids(
    serving: Serving, body: CompletionRequest, prompt: str | list[int]
) -> tuple[list[int], list[int]]:
    """(prompt, further tokens that end the answer)."""
    if isinstance(prompt, list):
        if body.suffix:
            raise invalid("suffix", "suffix: needs a prompt that is a text")
        if any(not -(2**31) <= token < 2**31 for token in prompt):
            raise invalid("prompt", "prompt: holds a token id that is not in the vocabulary")
        return prompt, []
    tokenizer = serving.need_tokenizer("prompt")
    if body.suffix:
        length = len(prompt) + len(body.suffix)
        return await off_loop(length, infill, tokenizer, prompt, body.suffix)
    special = body.prompt_options(True).add_special_tokens

    def encode() -> list[int]:
        return tokenizer.encode(prompt, add_special_tokens=special)

    return await off_loop(len(prompt), encode), []


class CompletionFormat:
    """Writes choices of one answer, whole or in chunks."""

    def __init__(self, serving: Serving, body: CompletionRequest, generation: Generation) -> None:
        self._id = generation.requests[0].request_id
        self._model = body.model
        self._created = int(time.time())
        self._texts = TokenTexts(serving.tokenizer, bool(body.return_tokens_as_token_ids))
        self._num_top, self._listed = body.logprobs, body.logprob_token_ids
        self._generation = generation
        self._n = generation.requests[0].params.n
        self._num_shown = body.n or 1
        self._returns_ids = bool(body.return_token_ids)
        self._num_scores = body.prompt_logprobs
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

    def choices(self, index: int, delta: Delta) -> Iterable[dict[str, Any]]:
        """The choice of a chunk, with the prompt before the first one if it is echoed."""
        shown = self._chunk(index, delta)
        return [shown] if shown["text"] or shown["finish_reason"] or delta.token_ids else ()

    def plain(self, text: str) -> dict[str, Any] | None:
        """The choice of a chunk that has nothing but a text."""
        is_plain = self._generates and self._num_top is None and self._num_scores is None
        if not is_plain or self._returns_ids:
            return None
        return self._choice(0, Choice(text), 0, with_prompt=False)

    def briefly(self, delta: Delta) -> str | Iterable[dict[str, Any]]:
        """The text of a chunk that is `plain`, or nothing."""
        return delta.text if delta.text or delta.token_ids else ()

    def _chunk(self, index: int, delta: Delta) -> dict[str, Any]:
        choice = Choice()
        choice.add(delta)
        if not self._generates:
            choice.text, choice.token_ids, choice.logprobs = "", [], []
        offset = self._offsets.get(index)
        with_prompt = offset is None and self._echo
        shown = self._choice(index, choice, offset, with_prompt)
        length = 0 if self._num_top is None else self._length(index, choice, with_prompt)
        self._offsets[index] = (offset or 0) + length
        return shown

    async def whole(self) -> dict[str, Any]:
        """The whole answer."""
        choices = await collect(self._generation)
        if not self._generates:
            for choice in choices:
                choice.text, choice.token_ids, choice.logprobs = "", [], []
        shown = [self._choice(i, choices[i], None, self._echo) for i in self._best(choices)]
        for index, one in enumerate(shown):
            one["index"] = index
        return {**self.head, "choices": shown, "usage": usage(self._generation)}

    def _best(self, choices: list[Choice]) -> list[int]:
        """Which choices are shown: of each prompt those whose tokens are the likeliest."""
        if self._num_shown == self._n:
            return list(range(len(choices)))
        shown: list[int] = []
        for start in range(0, len(choices), self._n):
            places = range(start, start + self._n)
            ranked = sorted(places, key=lambda i: (-mean_logprob(choices[i].logprobs), i))
            shown += ranked[: self._num_shown]
        return shown

    def _prompt_text(self, request: Request) -> str:
        if request.prompt is not None:
            return request.prompt
        return "" if self._tokenizer is None else self._tokenizer.decode(request.prompt_ids)

    def _length(self, index: int, choice: Choice, with_prompt: bool) -> int:
        ids = self._prompt_ids(index) if with_prompt else []
        return sum(len(self._texts.text(i)) for i in (*ids, *choice.token_ids))

    def _prompt_ids(self, index: int) -> list[int]:
        return self._generation.requests[index // self._n].prompt_ids

    def _choice(
        self, index: int, choice: Choice, offset: int | None, with_prompt: bool
    ) -> dict[str, Any]:
        """offset: characters that earlier chunks have shown of it; None: there was none."""
        text = choice.text
        ids, positions = choice.token_ids, list[TokenLogprobs | None](choice.logprobs)
        if with_prompt:
            place = index // self._n
            text = self._prompt_text(self._generation.requests[place]) + text
            ids = [*self._prompt_ids(index), *ids]
            positions = [*self._generation.prompt_logprobs.get(place, ()), *positions]
        logprobs = None
        if self._num_top is not None:
            logprobs = completion_logprobs(
                ids, positions, self._num_top, self._texts, offset or 0, self._listed
            )
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            **self._extras(index, choice, first=offset is None),
        }

    def _extras(self, index: int, choice: Choice, first: bool) -> dict[str, Any]:
        """What vLLM adds on request."""
        extras: dict[str, Any] = {}
        if self._returns_ids:
            extras["token_ids"] = choice.token_ids
            if first:
                extras["prompt_token_ids"] = self._prompt_ids(index)
        if self._num_scores is not None:
            scores = self._generation.prompt_logprobs.get(index // self._n)
            extras["prompt_logprobs"] = scored(scores, self._num_scores)
        return extras

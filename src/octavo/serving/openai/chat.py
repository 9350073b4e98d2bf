"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from octavo.engine.types import Delta, Request
from octavo.serving.context import Serving, off_loop
from octavo.serving.generation import Choice, Generation, collect, new_id
from octavo.serving.openai.logprobs import TokenTexts, chat_logprobs
from octavo.serving.openai.protocol import ChatRequest
from octavo.serving.openai.usage import FINGERPRINT, usage


async def chat_generation(serving: Serving, body: ChatRequest) -> Generation:
    """The engine request of a body. Raises ApiError or OctavoError naming what is wrong."""
    params = body.sampling_params()
    tokenizer = serving.need_tokenizer("messages")
    messages = [message.plain() for message in body.messages]

    def prompt() -> tuple[str, list[int]]:
        text = tokenizer.render_chat(
            messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            **(body.chat_template_kwargs or {}),
        )
        return text, tokenizer.encode(text, add_special_tokens=False)

    text, ids = await off_loop(sum(len(m["content"]) for m in messages), prompt)
    request = Request(
        request_id=new_id("chatcmpl"),
        prompt_ids=ids,
        params=params,
        prompt=text,
        priority=body.priority or 0,
        arrival_s=time.monotonic(),
        cache_salt=body.cache_salt or "",
    )
    return Generation(serving, [request], "messages")


class ChatFormat:
    """Writes choices of one answer, whole or in chunks."""

    def __init__(self, serving: Serving, body: ChatRequest, request_id: str) -> None:
        self._id = request_id
        self._model = body.model
        self._created = int(time.time())
        self._texts = TokenTexts(serving.tokenizer)
        self._num_top = body.top_logprobs or 0
        self._wants_logprobs = bool(body.logprobs)

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share."""
        return self._head("chat.completion.chunk")

    def opening(self, num_choices: int) -> Iterable[dict[str, Any]]:
        """A chunk with the role for each choice."""
        for index in range(num_choices):
            yield _chunk(index, {"role": "assistant", "content": ""})

    def choices(self, index: int, delta: Delta) -> Iterable[dict[str, Any]]:
        """The text, then the reason of the end."""
        logprobs = self._logprobs(delta.logprobs or [])
        if delta.text or (logprobs and logprobs["content"]):
            yield _chunk(index, {"content": delta.text}, logprobs)
        if delta.finish_reason is not None:
            end = _chunk(index, {})
            yield {**end, "finish_reason": delta.finish_reason, "stop_reason": delta.stop_reason}

    async def whole(self, generation: Generation) -> dict[str, Any]:
        """The whole answer."""
        choices = await collect(generation)
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": usage(generation),
        }

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": choice.text,
                "refusal": None,
                "annotations": [],
            },
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def _logprobs(self, positions: list[Any]) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        return chat_logprobs(positions, self._num_top, self._texts)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
        }


def _chunk(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

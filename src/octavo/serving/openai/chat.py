"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from octavo.parsing import TextPart
from octavo.serving.context import Serving
from octavo.serving.conversation import Conversation
from octavo.serving.generation import Generation
from octavo.serving.openai.extras import ChatExtras
from octavo.serving.openai.logprobs import TokenTexts, chat_logprobs
from octavo.serving.openai.protocol import ChatRequest
from octavo.serving.openai.usage import FINGERPRINT, usage
from octavo.serving.reply import Reply, ReplyChoice, ReplyDelta


def conversation_of(body: ChatRequest) -> Conversation:
    """The conversation of a body. Raises ApiError or OctavoError naming what is wrong."""
    return Conversation(
        messages=[message.plain() for message in body.messages],
        params=body.sampling_params(),
        add_generation_prompt=body.add_generation_prompt is not False,
        template_kwargs=body.chat_template_kwargs or {},
        prompt_options=body.prompt_options(False),
        request_id=body.request_id,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )


class ChatFormat:
    """Writes choices of one answer, whole or in chunks."""

    def __init__(self, serving: Serving, body: ChatRequest, reply: Reply) -> None:
        self._reply = reply
        self._id = reply.id
        self._model = body.model
        self._created = int(time.time())
        self._texts = TokenTexts(serving.tokenizer, bool(body.return_tokens_as_token_ids))
        self._num_top = body.top_logprobs or 0
        self._wants_logprobs = bool(body.logprobs)
        self._extras = ChatExtras(body, reply)

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share."""
        return self._head("chat.completion.chunk")

    @property
    def generation(self) -> Generation:
        """Where the token counts are."""
        return self._reply.generation

    async def choices(self) -> AsyncGenerator[dict[str, Any]]:
        """The choices of chunks, one a chunk: the roles, then the texts and the reasons of the
        ends as they come."""
        opened = False
        async with aclosing(self._reply.deltas()) as deltas:
            async for delta in deltas:
                if not opened:
                    opened = True
                    for index in range(self.generation.num_choices):
                        yield _chunk(index, {"role": "assistant", "content": ""})
                for choice in self._extras.chunks(delta, self._chunks(delta)):
                    yield choice

    def _chunks(self, delta: ReplyDelta) -> Iterable[dict[str, Any]]:
        logprobs = self._logprobs(delta.raw.logprobs or [])
        text = "".join(part.text for part in delta.parts if isinstance(part, TextPart))
        if text or (logprobs and logprobs["content"]):
            yield _chunk(delta.index, {"content": text}, logprobs)
        if delta.finish_reason is not None:
            end = _chunk(delta.index, {})
            yield {**end, "finish_reason": delta.finish_reason, "stop_reason": delta.stop_reason}

    async def whole(self) -> dict[str, Any]:
        """The whole answer."""
        choices = await self._reply.collect()
        answer = {
            **self._head("chat.completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": usage(self.generation),
        }
        return self._extras.whole(answer, choices)

    def _choice(self, index: int, choice: ReplyChoice) -> dict[str, Any]:
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

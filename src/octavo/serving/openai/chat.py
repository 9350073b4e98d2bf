"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from octavo.engine.types import Delta
from octavo.parsing import Part, ReasoningPart, TextPart, ToolCallPart
from octavo.serving.context import Serving
from octavo.serving.conversation import Conversation
from octavo.serving.generation import Generation
from octavo.serving.openai.chat_protocol import ChatRequest
from octavo.serving.openai.extras import ChatExtras
from octavo.serving.openai.logprobs import TokenTexts, chat_logprobs
from octavo.serving.openai.usage import FINGERPRINT, usage
from octavo.serving.reply import Reply, ReplyChoice, ReplyDelta


def conversation_of(body: ChatRequest) -> Conversation:
    """The conversation of a body. Raises ApiError or OctavoError naming what is wrong."""
    effort = body.reasoning_effort
    return Conversation(
        messages=[message.plain() for message in body.messages],
        params=body.sampling_params(),
        tools=body.offered(),
        tool_choice=body.choice(),
        parallel_tool_calls=body.parallel_tool_calls is not False and not body.is_legacy,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continues(),
        chat_template=body.chat_template,
        template_kwargs=_template_kwargs(body),
        reasoning=None if effort is None else effort != "none",
        reasoning_param="reasoning_effort",
        thinking_budget=body.thinking_token_budget,
        thinking_budget_param="thinking_token_budget",
        prompt_options=body.prompt_options(False),
        request_id=body.request_id,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )


def _template_kwargs(body: ChatRequest) -> dict[str, Any]:
    kwargs = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort not in (None, "none"):
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    if body.documents:
        kwargs["documents"] = body.documents
    return kwargs


class ChatFormat:
    """Writes choices of one answer, whole or in chunks."""

    def __init__(self, serving: Serving, body: ChatRequest, reply: Reply) -> None:
        self._reply = reply
        self._id = reply.id
        self._model = body.model
        self._created = int(time.time())
        self._texts = TokenTexts(serving.tokenizer, bool(body.return_tokens_as_token_ids))
        self._num_top, self._listed = body.top_logprobs or 0, body.logprob_token_ids
        self._wants_logprobs = bool(body.logprobs)
        self._extras = ChatExtras(body, reply)
        self._shows_reasoning = body.include_reasoning is not False
        self._legacy = body.is_legacy
        self._opened = False
        self._echo = body.echoed()

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share."""
        return self._head("chat.completion.chunk")

    @property
    def generation(self) -> Generation:
        """Where the token counts are."""
        return self._reply.generation

    def choices(self, index: int, delta: Delta) -> Iterable[dict[str, Any]]:
        """The choices of chunks, one a chunk: before the first delta the roles, then the texts and
        the reasons of the ends as they come."""
        if not self._opened:
            self._opened = True
            for each in range(self.generation.num_choices):
                yield _chunk(each, {"role": "assistant", "content": self._echo})
        cut = self._reply.cut(index, delta)
        if cut is not None:
            yield from self._extras.chunks(cut, self._chunks(cut))

    def plain(self, text: str) -> dict[str, Any] | None:
        """The choice of a chunk that has nothing but a text."""
        if self._wants_logprobs or self._extras.wants_ids or self._reply.may_end_early:
            return None
        return _chunk(0, {"content": text})

    def briefly(self, delta: Delta) -> str | Iterable[dict[str, Any]]:
        """The text of a chunk that is `plain`, or choices of others."""
        cut = self._reply.cut(0, delta)
        if cut is None:
            return ()
        match cut.parts:
            case [TextPart(text)]:
                return text
            case _:
                return self._chunks(cut)

    def _chunks(self, delta: ReplyDelta) -> Iterable[dict[str, Any]]:
        logprobs = self._logprobs(delta.raw.logprobs or [])
        shown = [found for part in delta.parts if (found := self._shown(part))]
        if not shown and logprobs and logprobs["content"]:
            shown = [{"content": ""}]
        for place, fields in enumerate(shown):
            yield _chunk(delta.index, fields, logprobs if place == 0 else self._logprobs([]))
        if delta.finish_reason is not None:
            end = _chunk(delta.index, {})
            reason = self._reason(delta.finish_reason)
            yield {**end, "finish_reason": reason, "stop_reason": delta.stop_reason}

    def _shown(self, part: Part) -> dict[str, Any] | None:
        """A part as fields of a chunk's delta."""
        match part:
            case TextPart(text):
                return {"content": text}
            case ReasoningPart(text):
                return _reasoning(text) if self._shows_reasoning else None
            case ToolCallPart(place, arguments, call_id, name):
                return self._call_delta(place, arguments, call_id, name)

    def _call_delta(
        self, place: int, arguments: str, call_id: str | None, name: str | None
    ) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
        if self._legacy:
            return {"function_call": function}
        begun = {"id": call_id, "type": "function"} if name else {}
        return {"tool_calls": [{"index": place, **begun, "function": function}]}

    def _reason(self, reason: str | None) -> str | None:
        return "function_call" if self._legacy and reason == "tool_calls" else reason

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
            "message": self._message(choice),
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": self._reason(choice.finish_reason),
            "stop_reason": choice.stop_reason,
        }

    def _message(self, choice: ReplyChoice) -> dict[str, Any]:
        text = self._echo + choice.text
        empty = None if choice.tool_calls or choice.reasoning else ""
        message: dict[str, Any] = {"role": "assistant", "content": text or empty}
        if choice.reasoning and self._shows_reasoning:
            message |= _reasoning(choice.reasoning)
        functions = [{"name": c.name, "arguments": c.arguments} for c in choice.tool_calls]
        if functions and self._legacy:
            message["function_call"] = functions[0]
        elif functions:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": function}
                for call, function in zip(choice.tool_calls, functions, strict=True)
            ]
        return {**message, "refusal": None, "annotations": []}

    def _logprobs(self, positions: list[Any]) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        return chat_logprobs(positions, self._num_top, self._texts, self._listed)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
        }


def _reasoning(text: str) -> dict[str, Any]:
    """Under both names that clients look for."""
    return {"reasoning_content": text, "reasoning": text}


def _chunk(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

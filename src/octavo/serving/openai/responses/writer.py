"""Writes a Reply as a response: all its events, the last of which holds the whole."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from octavo.parsing import ReasoningPart
from octavo.serving.blocks import Block, BlockEvent, Blocks
from octavo.serving.context import Serving
from octavo.serving.errors import ApiError
from octavo.serving.openai.logprobs import TokenTexts, chat_logprobs
from octavo.serving.openai.responses import answer, events
from octavo.serving.openai.responses.pieces import Pieces
from octavo.serving.openai.responses.protocol import ResponseRequest
from octavo.serving.record import wanted_timings
from octavo.serving.reply import Reply, ReplyDelta


class ResponseWriter:
    """One response. `response` is as far as it has come; `stream` may be used once."""

    def __init__(self, serving: Serving, body: ResponseRequest, reply: Reply) -> None:
        self._reply = reply
        self._num_top = body.num_logprobs
        self._shows_thoughts = body.include_reasoning is not False
        self._texts = TokenTexts(serving.tokenizer)
        self._blocks = Blocks()
        self._pieces = Pieces(
            summarizes=body.reasoning is not None and body.reasoning.summarizes,
            encrypts="reasoning.encrypted_content" in (body.include or ()),
        )
        self._fresh: list[answer.Logprob] = []  # of tokens whose text is not shown yet
        self._number = -1
        self._cut_off = False
        self.response = described(body, reply.id)

    async def whole(self) -> answer.Response:
        """The whole response."""
        async with aclosing(self.stream()) as stream:
            async for _ in stream:
                pass
        return self.response

    async def stream(self) -> AsyncGenerator[events.Event]:
        """The events of a stream, the first with the first token. Errors are ApiErrors."""
        opened = False
        async with aclosing(self._reply.deltas()) as deltas:
            async for delta in deltas:
                if not opened:
                    opened = True
                    yield self._count(events.Created(response=self._snapshot()))
                    yield self._count(events.InProgress(response=self._snapshot()))
                for event in self._changes(delta):
                    yield self._count(event)
        yield self._count(self._end())

    def failed(self, error: ApiError) -> events.Event:
        """The last event of a stream that an error ends."""
        self.response.status = "failed"
        self.response.error = answer.ErrorBody(error.code or "server_error", error.message)
        return self._count(events.Failed(response=self.response))

    def _count(self, event: events.Event) -> events.Event:
        self._number += 1
        event.sequence_number = self._number
        return event

    def _snapshot(self) -> answer.Response:
        return msgspec.structs.replace(self.response, output=[*self.response.output])

    def _changes(self, delta: ReplyDelta) -> Iterator[events.Event]:
        self._cut_off = delta.finish_reason == "length"
        self._fresh += self._logprobs(delta)
        if not self._shows_thoughts:
            delta.parts = [part for part in delta.parts if not isinstance(part, ReasoningPart)]
        changes = self._blocks.push(delta)
        if delta.finish_reason is not None and not self._blocks.all:
            empty = Block(0, "text")
            changes = [BlockEvent("open", empty), BlockEvent("close", empty)]
        for change in changes:
            shows = (change.action, change.block.kind) == ("more", "text")
            fresh = self._fresh if shows else []
            if change.action == "more":
                self._fresh = []  # logprobs of thoughts and calls are not shown
            for event in self._pieces.describe(change, fresh, self._cut_off):
                if isinstance(event, events.ItemDone):
                    self.response.output.append(event.item)
                yield event

    def _logprobs(self, delta: ReplyDelta) -> list[answer.Logprob]:
        if self._num_top is None or not delta.raw.logprobs:
            return []
        found = chat_logprobs(delta.raw.logprobs, self._num_top, self._texts)["content"]
        return [_logprob(entry) for entry in found]

    def _end(self) -> events.Event:
        response = self.response
        response.usage = self._usage()
        response.completed_at = int(time.time())
        response.metrics = wanted_timings() or msgspec.UNSET
        if self._cut_off:
            response.status = "incomplete"
            response.incomplete_details = answer.Incomplete("max_output_tokens")
            return events.IncompleteEnd(response=response)
        response.status = "completed"
        return events.Completed(response=response)

    def _usage(self) -> answer.Usage:
        generation = self._reply.generation
        given, made = generation.num_prompt_tokens, generation.num_output_tokens
        cached = answer.CachedDetails(generation.num_cached_tokens)
        details = answer.OutputDetails(generation.num_reasoning_tokens)
        return answer.Usage(given, cached, made, details, given + made)


def described(body: ResponseRequest, response_id: str) -> answer.Response:
    """A response that has not begun: what was asked for, defaults filled in."""
    plain: dict[str, Any] = body.model_dump(mode="json", by_alias=True, exclude_none=True)
    names = {field.name for field in msgspec.structs.fields(answer.Response)}
    skipped = {"id", "text", "tools", "reasoning", "service_tier"}
    given = {name: plain[name] for name in plain if name in names - skipped}
    reasoning = plain.get("reasoning", {})
    return answer.Response(
        id=response_id.replace("-", "_", 1),
        created_at=int(time.time()),
        text={"format": {"type": "text"}, "verbosity": "medium", **plain.get("text", {})},
        tools=[_tool(tool) for tool in plain.get("tools", ())],
        reasoning=answer.Reasoning(reasoning.get("effort"), reasoning.get("summary")),
        **given,
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {"description": None, "parameters": None, "strict": False, **tool}


def _logprob(entry: dict[str, Any]) -> answer.Logprob:
    top = [answer.TopLogprob(**candidate) for candidate in entry["top_logprobs"]]
    return answer.Logprob(entry["token"], entry["logprob"], entry["bytes"], top)

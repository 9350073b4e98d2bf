"""Writes a Reply as an Anthropic message, whole or as events."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec

from octavo.serving.anthropic import answer
from octavo.serving.anthropic.protocol import MessageRequest
from octavo.serving.blocks import Block, BlockEvent, Blocks
from octavo.serving.error_shapes import anthropic_shape
from octavo.serving.errors import ApiError
from octavo.serving.record import wanted_timings
from octavo.serving.reply import Reply, ReplyDelta


class MessageWriter:
    """One answer. Use either `whole` or `events`."""

    def __init__(self, body: MessageRequest, reply: Reply) -> None:
        self._body, self._reply = body, reply
        self._blocks = Blocks()
        self._shows_thoughts = not (body.thinking and body.thinking.display == "omitted")

    async def whole(self) -> answer.Message:
        """The whole message."""
        message = self._head()
        async with aclosing(self._reply.deltas()) as deltas:
            async for delta in deltas:
                self._blocks.push(delta)
                if delta.finish_reason is not None:
                    message.stop_reason, message.stop_sequence = self._end(delta)
        message.content = [self._block(block) for block in self._blocks.all]
        message.usage = self._usage()
        message.metrics = wanted_timings() or msgspec.UNSET
        return message

    async def events(self) -> AsyncGenerator[answer.Event]:
        """The events of a stream. The first comes with the first token, so that what fails before
        still chooses the status of the answer."""
        opened = False
        async with aclosing(self._reply.deltas()) as deltas:
            async for delta in deltas:
                if not opened:
                    opened = True
                    yield answer.MessageStart(self._head())
                    yield answer.Ping()
                for event in self._changes(delta):
                    yield event
                if delta.finish_reason is not None:
                    yield answer.MessageDelta(answer.End(*self._end(delta)), self._delta_usage())
        yield answer.MessageStop(metrics=wanted_timings() or msgspec.UNSET)

    def _changes(self, delta: ReplyDelta) -> Iterator[answer.Event]:
        for change in self._blocks.push(delta):
            yield from self._event(change)

    def _event(self, change: BlockEvent) -> Iterator[answer.Event]:
        block = change.block
        match change.action:
            case "open":
                yield answer.BlockStart(block.index, _empty(block))
            case "more":
                if block.kind != "reasoning" or self._shows_thoughts:
                    yield answer.BlockMore(block.index, _delta(block, change.text))
            case "close":
                if block.kind == "reasoning":
                    yield answer.BlockMore(block.index, answer.SignatureDelta(_sign(block)))
                yield answer.BlockStop(block.index)

    def _block(self, block: Block) -> answer.ContentBlock:
        match block.kind:
            case "text":
                return answer.Text(block.text)
            case "reasoning":
                return answer.Thinking(block.text if self._shows_thoughts else "", _sign(block))
            case "tool_call":
                return answer.ToolUse(block.id, block.name, block.arguments())

    def _end(self, delta: ReplyDelta) -> tuple[answer.StopReason, str | None]:
        if delta.finish_reason == "tool_calls":
            return "tool_use", None
        if delta.finish_reason == "length":
            spent = self._reply.generation.num_output_tokens >= self._body.max_tokens
            return "max_tokens" if spent else "model_context_window_exceeded", None
        if isinstance(delta.stop_reason, str):
            return "stop_sequence", delta.stop_reason
        return "end_turn", None

    def _head(self) -> answer.Message:
        return answer.Message(self._reply.id, self._body.model, [], self._usage())

    def _usage(self) -> answer.Usage:
        generation = self._reply.generation
        cached = generation.num_cached_tokens
        fresh = generation.num_prompt_tokens - cached
        details = answer.OutputDetails(generation.num_reasoning_tokens)
        output = generation.num_output_tokens
        return answer.Usage(fresh, output, cached, output_tokens_details=details)

    def _delta_usage(self) -> answer.DeltaUsage:
        usage = self._usage()
        return answer.DeltaUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            output_tokens_details=usage.output_tokens_details,
        )


def failed(error: ApiError) -> answer.Error:
    """The event of an error in the middle of a stream."""
    body = anthropic_shape(error)["error"]
    return answer.Error(answer.ErrorBody(body["type"], body["message"]), error.request_id)


def _empty(block: Block) -> answer.ContentBlock:
    match block.kind:
        case "text":
            return answer.Text()
        case "reasoning":
            return answer.Thinking()
        case "tool_call":
            return answer.ToolUse(block.id, block.name, {})


def _delta(block: Block, text: str) -> answer.BlockDelta:
    match block.kind:
        case "text":
            return answer.TextDelta(text)
        case "reasoning":
            return answer.ThinkingDelta(text)
        case "tool_call":
            return answer.InputJsonDelta(text)


def _sign(block: Block) -> str:
    return hashlib.sha256(block.text.encode("utf-8", "replace")).hexdigest()

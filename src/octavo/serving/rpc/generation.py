"""The service octavo.v1.Generation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from octavo.engine.types import TokenLogprobs
from octavo.parsing import ReasoningPart, TextPart, ToolCallPart
from octavo.rpc import generation_pb2 as pb
from octavo.rpc import generation_pb2_grpc
from octavo.serving.context import Serving
from octavo.serving.generation import Generation
from octavo.serving.reply import Reply, ReplyChoice, ReplyDelta
from octavo.serving.rpc.origin import origin_of
from octavo.serving.rpc.requests import reply_of
from octavo.serving.rpc.status import Context, told


class GenerationService(generation_pb2_grpc.GenerationServicer):
    """Answers from the server's engine."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """The whole answer."""
        async with told(context):
            reply = await reply_of(self._serving, request, origin_of(self._serving, context))
            choices = await reply.collect()
            return pb.GenerateResponse(
                id=reply.id,
                model=request.model or self._serving.names[0],
                choices=[_choice(index, choice) for index, choice in enumerate(choices)],
                usage=_usage(reply.generation),
            )
        raise AssertionError("unreachable: an abort raises")

    async def GenerateStream(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateChunk]:
        """The answer as it comes."""
        async with told(context):
            reply = await reply_of(self._serving, request, origin_of(self._serving, context))
            async with aclosing(_chunks(reply)) as chunks:
                async for chunk in chunks:
                    yield chunk


async def _chunks(reply: Reply) -> AsyncGenerator[pb.GenerateChunk]:
    open_choices = reply.generation.num_choices
    async with aclosing(reply.deltas()) as deltas:
        async for delta in deltas:
            chunk = _chunk(delta)
            if delta.finish_reason is not None:
                open_choices -= 1
                if open_choices == 0:
                    chunk.usage.CopyFrom(_usage(reply.generation))
            if chunk.ByteSize() > 0:
                yield chunk


def _chunk(delta: ReplyDelta) -> pb.GenerateChunk:
    chunk = pb.GenerateChunk(
        text="".join(part.text for part in delta.parts if isinstance(part, TextPart)),
        reasoning="".join(part.text for part in delta.parts if isinstance(part, ReasoningPart)),
        tool_calls=[_call(part) for part in delta.parts if isinstance(part, ToolCallPart)],
        token_ids=delta.raw.token_ids,
        logprobs=[_logprobs(one) for one in delta.raw.logprobs or ()],
    )
    _end(chunk, delta.finish_reason, delta.stop_reason)
    if chunk.ByteSize() > 0:
        chunk.index = delta.index
    return chunk


def _choice(index: int, choice: ReplyChoice) -> pb.GenerateChunk:
    chunk = pb.GenerateChunk(
        index=index,
        text=choice.text,
        reasoning=choice.reasoning,
        tool_calls=[
            pb.ToolCall(id=call.id, name=call.name, arguments=call.arguments, index=place)
            for place, call in enumerate(choice.tool_calls)
        ],
        token_ids=choice.token_ids,
        logprobs=[_logprobs(one) for one in choice.logprobs],
    )
    _end(chunk, choice.finish_reason, choice.stop_reason)
    return chunk


def _end(chunk: pb.GenerateChunk, reason: str | None, stop: int | str | None) -> None:
    chunk.finish_reason = reason or ""
    if isinstance(stop, int):
        chunk.stop_token_id = stop
    elif stop is not None:
        chunk.stop_string = stop


def _call(part: ToolCallPart) -> pb.ToolCall:
    return pb.ToolCall(
        id=part.id or "", name=part.name or "", arguments=part.arguments, index=part.place
    )


def _logprobs(candidates: TokenLogprobs) -> pb.TokenLogprobs:
    shown = [
        pb.Candidate(token_id=token, logprob=one.logprob, rank=one.rank or 0)
        for token, one in candidates.items()
    ]
    return pb.TokenLogprobs(candidates=shown)


def _usage(generation: Generation) -> pb.Usage:
    return pb.Usage(
        prompt_tokens=generation.num_prompt_tokens,
        cached_tokens=generation.num_cached_tokens,
        output_tokens=generation.num_output_tokens,
    )

"""Answers as server-sent events, common to both kinds of completion."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from octavo.serving.errors import ApiError
from octavo.serving.generation import Generation
from octavo.serving.json import encode
from octavo.serving.openai.usage import usage
from octavo.serving.record import add_timings, asked_for_timings

DONE = b"data: [DONE]\n\n"


class ChunkWriter(Protocol):
    """Turns what the engine says into the choices of chunks."""

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share: id, object, created, model."""
        ...

    @property
    def generation(self) -> Generation:
        """Where the token counts are."""
        ...

    def choices(self) -> AsyncGenerator[dict[str, Any]]:
        """Choices as they come, one a chunk. Errors are ApiErrors."""
        ...


async def event_stream(
    writer: ChunkWriter, wants_usage: bool, running_usage: bool = False
) -> AsyncGenerator[bytes]:
    """Events from the first choice to [DONE]. What fails before the first one is raised; what
    fails later becomes an error event. running_usage: every chunk has the counts so far."""
    shared = {**writer.head, **({"usage": None} if wants_usage else {})}
    opened = False
    async with aclosing(writer.choices()) as choices:
        try:
            async for choice in choices:
                opened = True
                if running_usage:
                    shared["usage"] = usage(writer.generation)
                yield sse({**shared, "choices": [choice]})
        except ApiError as error:
            if not opened:
                raise
            yield sse(error.body())
            yield DONE
            return
    if wants_usage or asked_for_timings():
        counts = usage(writer.generation) if wants_usage else None
        yield sse(add_timings({**writer.head, "choices": [], "usage": counts}))
    yield DONE


def sse(value: Any) -> bytes:
    """One event."""
    return b"data: " + encode(value) + b"\n\n"

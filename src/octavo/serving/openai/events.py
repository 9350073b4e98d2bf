"""Answers as server-sent events, common to both kinds of completion."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from octavo.engine.types import Delta
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

    def choices(self, index: int, delta: Delta) -> Iterable[dict[str, Any]]:
        """The choices of the next delta, one a chunk."""
        ...


async def event_stream(
    writer: ChunkWriter, wants_usage: bool, running_usage: bool = False
) -> AsyncGenerator[bytes]:
    """Events from the first choice to [DONE]; those that come together are yielded together. What
    fails before the first one is raised; what fails later becomes an error event. running_usage:
    every chunk has the counts so far."""
    shared = {**writer.head, **({"usage": None} if wants_usage else {})}
    opened, generation = False, writer.generation
    generation.one_by_one = running_usage
    async with aclosing(generation.batches()) as batches:
        try:
            async for batch in batches:
                if running_usage:
                    shared["usage"] = usage(generation)
                events = [
                    sse({**shared, "choices": [choice]})
                    for index, delta in batch
                    for choice in writer.choices(index, delta)
                ]
                if events:
                    opened = True
                    yield b"".join(events)
        except ApiError as error:
            if not opened:
                raise
            yield sse(error.body())
            yield DONE
            return
    if wants_usage or asked_for_timings():
        counts = usage(generation) if wants_usage else None
        yield sse(add_timings({**writer.head, "choices": [], "usage": counts}))
    yield DONE


def sse(value: Any) -> bytes:
    """One event."""
    return b"data: " + encode(value) + b"\n\n"

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

DONE = b"data: [DONE]\n\n"


class ChunkWriter(Protocol):
    """Turns deltas into the choices of chunks."""

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks share: id, object, created, model."""
        ...

    def opening(self, num_choices: int) -> Iterable[dict[str, Any]]:
        """Choices sent before any delta."""
        ...

    def choices(self, index: int, delta: Delta) -> Iterable[dict[str, Any]]:
        """Choices that one delta becomes, one a chunk."""
        ...


async def event_stream(
    generation: Generation, writer: ChunkWriter, wants_usage: bool
) -> AsyncGenerator[bytes]:
    """Events from the first delta to [DONE]. What fails before the first one is raised; what fails
    later becomes an error event."""
    shared = {**writer.head, **({"usage": None} if wants_usage else {})}

    def event(choice: dict[str, Any]) -> bytes:
        return sse({**shared, "choices": [choice]})

    opened = False
    async with aclosing(generation.deltas()) as deltas:
        try:
            async for index, delta in deltas:
                if not opened:
                    opened = True
                    for choice in writer.opening(generation.num_choices):
                        yield event(choice)
                for choice in writer.choices(index, delta):
                    yield event(choice)
        except ApiError as error:
            if not opened:
                raise
            yield sse(error.body())
            yield DONE
            return
    if wants_usage:
        yield sse({**writer.head, "choices": [], "usage": usage(generation)})
    yield DONE


def sse(value: Any) -> bytes:
    """One event."""
    return b"data: " + encode(value) + b"\n\n"

"""Answers as server-sent events, common to both kinds of completion."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from octavo.engine.types import Delta
from octavo.serving.errors import ApiError
from octavo.serving.generation import Generation
from octavo.serving.json import encode
from octavo.serving.openai.usage import usage
from octavo.serving.record import add_timings, asked_for_timings
from octavo.serving.shortcut import Shortcut

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

    def plain(self, text: str) -> dict[str, Any] | None:
        """The choice of a chunk that has nothing but a text, once the answer has begun; None where
        chunks have more."""
        ...

    def briefly(self, delta: Delta) -> str | Iterable[dict[str, Any]]:
        """What `choices` says of a lone choice's next delta that ends nothing, or the text of its
        only chunk if that is `plain`."""
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
    if not running_usage and (event := _brief_event(writer, shared)) is not None:
        generation.shortcut = Shortcut(event)
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
        yield sse(add_timings({**writer.head, "choices": [], "usage": counts})) + DONE
    else:
        yield DONE


def _brief_event(writer: ChunkWriter, shared: dict[str, Any]) -> Callable[[Delta], bytes] | None:
    """Writes the events of deltas in the middle of an answer, all but a text written beforehand."""
    mark = uuid.uuid4().hex
    choice = writer.plain(mark)
    if choice is None:
        return None
    before, after = sse({**shared, "choices": [choice]}).split(encode(mark))

    def event(delta: Delta) -> bytes:
        found = writer.briefly(delta)
        if isinstance(found, str):
            return before + encode(found) + after
        return b"".join([sse({**shared, "choices": [choice]}) for choice in found])

    return event


def sse(value: Any) -> bytes:
    """One event."""
    return b"data: " + encode(value) + b"\n\n"

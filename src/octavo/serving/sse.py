"""Server-sent events with names, as Anthropic's messages and OpenAI's responses stream them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from octavo.serving.errors import ApiError
from octavo.serving.json import encode


def named_event(value: msgspec.Struct) -> bytes:
    """One event; its name is the Struct's tag."""
    name = str(value.__struct_config__.tag)
    return b"event: " + name.encode() + b"\ndata: " + encode(value) + b"\n\n"


async def named_events(
    values: AsyncGenerator[msgspec.Struct], failed: Callable[[ApiError], msgspec.Struct]
) -> AsyncGenerator[bytes]:
    """`values` as events. What fails before the first one is raised; what fails later becomes the
    event `failed` makes of it, and the stream ends."""
    opened = False
    async with aclosing(values):
        try:
            async for value in values:
                opened = True
                yield named_event(value)
        except ApiError as error:
            if not opened:
                raise
            yield named_event(failed(error))

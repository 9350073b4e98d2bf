"""The engine process's standard error, line by line into this process's logs."""

from __future__ import annotations

import asyncio

from octavo import logs

MAX_LINE_BYTES = 64 * 1024  # of a line that never ends, no more than this is kept together


async def forward_lines(stream: asyncio.StreamReader) -> None:
    """Pass every line on until the stream ends."""
    rest = b""
    while data := await stream.read(MAX_LINE_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            logs.pass_on(line)
        if len(rest) > MAX_LINE_BYTES:
            logs.pass_on(rest)
            rest = b""
    logs.pass_on(rest)

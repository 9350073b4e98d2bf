"""Runs items beside each other and hands every record over as soon as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from octavo.batch.lines import BadLine, Item
from octavo.batch.records import Answer, Tally, answer_record, bad_line_record

PAUSE_S = 0.1

Call = Callable[[Item], Awaitable[Answer]]
Keep = Callable[[dict[str, Any]], Awaitable[None]]


async def run_items(
    items: Iterable[Item | BadLine],
    settled: Tally,
    call: Call,
    keep: Keep,
    limit: Callable[[], int],
) -> None:
    """Run what is not settled yet, at most limit() at a time (0 pauses); `keep` takes the records
    in the order in which they are ready. What call or keep raises ends everything at once, as
    cancelling does; kept records stay kept.
    """
    running: set[asyncio.Task[None]] = set()
    try:
        for item in items:
            if settled.settles(item):
                continue
            if isinstance(item, BadLine):
                await keep(bad_line_record(item))
                continue
            while len(running) >= limit():
                running = await _one_less(running)
            running.add(asyncio.create_task(_answer(item, call, keep)))
        while running:
            running = await _one_less(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _answer(item: Item, call: Call, keep: Keep) -> None:
    await keep(answer_record(item, await call(item)))


async def _one_less(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait for any to end, or a moment: the limit may have changed meanwhile."""
    if not running:
        await asyncio.sleep(PAUSE_S)
        return running
    done, left = await asyncio.wait(running, timeout=PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return left

"""A batch file run in this process: the server's own routes, without a port or a second process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import Any

from starlette.types import ASGIApp

from octavo.batch import Answer, BadLine, Item, Journal, Tally, run_items
from octavo.engine import AsyncEngine
from octavo.errors import EngineError
from octavo.records import replace
from octavo.serving.app import create_app
from octavo.serving.context import Serving
from octavo.serving.inner import call_route
from octavo.serving.inprocess import LocalClient
from octavo.serving.json import encode
from octavo.serving.options import ServerOptions

BUSY = frozenset({429, 503})
MAX_TRIES = 6
FIRST_WAIT_S = 0.2  # doubled after each try


async def run_offline(
    engine: AsyncEngine,
    model_path: str,
    items: Iterable[Item | BadLine],
    journal: Journal,
    tally: Tally,
    *,
    model: str,
    concurrency: int,
    on_record: Callable[[], None],
) -> None:
    """Answer what `tally` does not settle yet and append it to `journal`.

    model: what bodies without a model mean. on_record: called when `tally` has grown. Raises
    JournalError when the disk is full and EngineError when the engine is dead; everything finished
    by then is kept.
    """
    options = ServerOptions(served_model_names=(model,))
    app = create_app(LocalClient(engine, model_path), options)
    serving: Serving = app.state.serving

    async def call(item: Item) -> Answer:
        return await call_patiently(app, item, model)

    async def keep(record: dict[str, Any]) -> None:
        journal.append(record)
        tally.add(record)
        on_record()

    async with app.router.lifespan_context(app):
        while (waiting := serving.waiting_for) is not None:
            await asyncio.sleep(0.01)
            _raise_if_failed(serving, waiting)
        await run_items(items, tally, call, keep, lambda: concurrency)


async def call_patiently(app: ASGIApp, item: Item, model: str) -> Answer:
    """The answer to one item; a busy server is asked again, a dead one raises EngineError."""
    body = encode({"model": model, **item.body})
    for attempt in range(MAX_TRIES):
        status, found = await call_route(app, item.url, body)
        if status not in BUSY:
            return Answer(status, found)
        await asyncio.sleep(FIRST_WAIT_S * 2**attempt)
    raise EngineError(f"batch: line {item.line} found no engine: {found}")


def _raise_if_failed(serving: Serving, waiting: tuple[str, str]) -> None:
    if waiting[0] == "dead":
        raise EngineError(f"engine: {waiting[1]}")


def with_model(item: Item | BadLine, model: str, kept: Container[str] = ()) -> Item | BadLine:
    """The item, asking for `model`, unless it asks for one of `kept`."""
    if isinstance(item, BadLine):
        return item
    named = item.body.get("model")
    if isinstance(named, str) and named in kept:
        return item
    return replace(item, body={**item.body, "model": model})

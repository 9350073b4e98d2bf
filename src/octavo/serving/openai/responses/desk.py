"""Where responses of one client are kept, found, worked on in the background and cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import Request

from octavo.serving.errors import RETRY_AFTER_S, ApiError, invalid
from octavo.serving.generation import new_id
from octavo.serving.openai.responses import answer, events
from octavo.serving.openai.responses.protocol import ResponseRequest
from octavo.serving.openai.responses.store import ResponseStore, Stored
from octavo.serving.openai.responses.writer import ResponseWriter
from octavo.serving.storage import owner_of

MAX_BACKGROUND = 256
logger = logging.getLogger(__name__)
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class Desk:
    """One client's view of the store. owner: who the client is."""

    def __init__(self, store: ResponseStore, owner: str) -> None:
        self._store, self._owner = store, owner

    def previous(self, response_id: str | None) -> Stored | None:
        """The response to go on from, if one is named. Raises 400."""
        if response_id is None:
            return None
        name = "previous_response_id"
        stored = self._store.get(response_id, self._owner)
        if stored is None:
            message = f"{name}: there is no response {response_id!r}; it may have expired"
            raise invalid(name, message, "previous_response_not_found")
        if stored.response.status not in ("completed", "incomplete"):
            raise invalid(name, f"{name}: the response is {stored.response.status}")
        return stored

    def find(self, response_id: str) -> Stored:
        """A response that was kept. Raises 404."""
        stored = self._store.get(response_id, self._owner)
        if stored is None:
            message = f"There is no response {response_id!r}; it may have expired."
            raise ApiError(404, message, param="response_id", code="response_not_found")
        return stored

    def new(
        self, body: ResponseRequest, response: answer.Response, previous: Stored | None
    ) -> Stored:
        """What is to be kept of a response that has not begun."""
        before = [] if previous is None else previous.history
        items = _items(body)
        return Stored(response, self._owner, items, [*before, *items])

    def keep(self, stored: Stored) -> None:
        """Keep a response that is at its end, unless it is not to be stored."""
        if stored.response.store:
            stored.history += _sent_back(stored.response)
            self._store.put(stored)

    async def keeping(self, stored: Stored, writer: ResponseWriter) -> AsyncGenerator[events.Event]:
        """The events of a stream; the response is kept before the last one goes out."""
        async with aclosing(writer.stream()) as stream:
            async for event in stream:
                if isinstance(event, events.Completed | events.IncompleteEnd):
                    self.keep(stored)
                yield event

    def start(self, stored: Stored, writer: ResponseWriter) -> answer.Response:
        """Work on a response in the background. Raises 429 if too many are."""
        if self._store.num_running() >= MAX_BACKGROUND:
            raise ApiError(
                429,
                f"{MAX_BACKGROUND} responses are being worked on in the background already.",
                kind="rate_limit_error",
                code="background_full",
                retry_after_s=RETRY_AFTER_S,
            )
        stored.response.status = "queued"
        stored.task = asyncio.create_task(self._work(stored, writer), name=stored.response.id)
        self._store.put(stored)
        return stored.response

    async def _work(self, stored: Stored, writer: ResponseWriter) -> None:
        try:
            async with aclosing(writer.stream()) as stream:
                async for event in stream:
                    if isinstance(event, events.Created):
                        stored.response.status = "in_progress"
        except ApiError as error:
            writer.failed(error)
        except Exception:
            logger.exception("response %s failed", stored.response.id)
            writer.failed(ApiError(500, "The server had an error.", code="server_error"))
        finally:
            stored.task = None
        self.keep(stored)

    def cancel(self, response_id: str) -> answer.Response:
        """Stop the work in the background. Raises 400 if the response was not to be worked on
        there, or is at its end."""
        stored = self.find(response_id)
        if stored.response.status == "cancelled":
            return stored.response
        if not stored.response.background or stored.task is None:
            message = "Only responses that run in the background can be cancelled."
            raise invalid("response_id", f"response_id: {message}")
        stored.task.cancel()
        stored.response.status = "cancelled"
        self._store.put(stored)
        return stored.response

    def delete(self, response_id: str) -> None:
        """Forget a response. Raises 404."""
        stored = self.find(response_id)
        if stored.task is not None:
            stored.task.cancel()
        self._store.drop(response_id)


def desk_of(request: Request) -> Desk:
    """The desk of the client that asks."""
    store: ResponseStore = request.app.state.responses
    return Desk(store, owner=owner_of(request))


def _items(body: ResponseRequest) -> list[dict[str, Any]]:
    """The input as it is shown to clients."""
    if isinstance(body.input, str):
        part = {"type": "input_text", "text": body.input}
        return [_named({"type": "message", "role": "user", "content": [part]})]
    return [_named(item.model_dump(exclude_none=True)) for item in body.input or ()]


def _named(item: dict[str, Any]) -> dict[str, Any]:
    """An item with an id, and with parts in place of plain text, as it is shown to clients."""
    prefix = _PREFIXES.get(item["type"], "fco")
    named = {"id": new_id(prefix).replace("-", "_"), "status": "completed", **item}
    if isinstance(item.get("content"), str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        more: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
        named["content"] = [{"type": kind, "text": item["content"], **more}]
    return named


def _sent_back(response: answer.Response) -> list[dict[str, Any]]:
    """The output as input items."""
    items: list[dict[str, Any]] = msgspec.to_builtins(response.output)
    return items

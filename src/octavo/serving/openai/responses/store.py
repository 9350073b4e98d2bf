"""Responses that are kept to be looked up and gone on from: in memory, bounded, for some time."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.serving.openai.responses.answer import Response

MAX_RESPONSES = 4096
MAX_BYTES = 128 * 2**20  # of JSON
TTL_S = 24 * 3600.0


@dataclass
class Stored:
    """input: the items the request came with. history: all items of the conversation, those of the
    answer included once it is whole. task: what still works on it in the background."""

    response: Response
    owner: str
    input: list[dict[str, Any]]
    history: list[dict[str, Any]]
    task: asyncio.Task[None] | None = None
    size_bytes: int = field(default=0)
    expires_s: float = field(default=0.0)


class ResponseStore:
    """Used by one event loop. The least recently used responses go first; those that are still
    being worked on stay. owner: nobody sees the responses of others."""

    def __init__(
        self,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._ttl_s, self._clock = ttl_s, clock
        self._found: OrderedDict[str, Stored] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def put(self, stored: Stored) -> None:
        """Keep a response, or measure it again after it has grown."""
        self.drop(stored.response.id)
        kept = (stored.response, stored.input, stored.history)
        stored.size_bytes = sum(len(msgspec.json.encode(part)) for part in kept)
        stored.expires_s = self._clock() + self._ttl_s
        self._found[stored.response.id] = stored
        self.size_bytes += stored.size_bytes
        self._shrink()

    def get(self, response_id: str, owner: str) -> Stored | None:
        """The response, if it is there and its owner asks."""
        stored = self._found.get(response_id)
        if stored is None or stored.owner != owner:
            return None
        if stored.expires_s <= self._clock() and stored.task is None:
            self.drop(response_id)
            return None
        self._found.move_to_end(response_id)
        return stored

    def drop(self, response_id: str) -> None:
        """Forget a response, if it is there."""
        stored = self._found.pop(response_id, None)
        if stored is not None:
            self.size_bytes -= stored.size_bytes

    def num_running(self) -> int:
        """Responses that are being worked on in the background."""
        return sum(stored.task is not None for stored in self._found.values())

    async def close(self) -> None:
        """Stop the work in the background."""
        tasks = [stored.task for stored in self._found.values() if stored.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _shrink(self) -> None:
        now = self._clock()
        for response_id in [i for i, stored in self._found.items() if stored.task is None]:
            full = len(self._found) > self._max_responses or self.size_bytes > self._max_bytes
            if not full and self._found[response_id].expires_s > now:
                return
            self.drop(response_id)

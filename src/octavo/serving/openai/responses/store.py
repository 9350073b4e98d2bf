"""Responses that are kept to be looked up and gone on from: bounded, for some time; in memory, and
with a folder on disk as well (shelf.py)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.serving.json import encode
from octavo.serving.openai.responses.answer import Response
from octavo.serving.openai.responses.shelf import Kept, Shelf

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
        self._shelf: Shelf | None = None
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def open(self, folder: Path) -> None:
        """Keep responses in this folder, too, and take up those that are there. Raises OSError."""
        self._shelf = Shelf(folder, self._max_bytes)
        for kept in self._shelf.all():
            stored = Stored(kept.response, kept.owner, kept.input, kept.history)
            self._insert(stored, min(self._ttl_s, kept.expires_at - time.time()))
        self._shrink()

    def put(self, stored: Stored) -> None:
        """Keep a response, or keep it as it is now."""
        self._forget(stored.response.id)
        self._insert(stored, self._ttl_s)
        if self._shelf is not None:
            parts = (stored.response, stored.owner, stored.input, stored.history)
            self._shelf.put(Kept(*parts, expires_at=time.time() + self._ttl_s))
        self._shrink()

    def _insert(self, stored: Stored, lifetime_s: float) -> None:
        kept = (stored.response, stored.input, stored.history)
        stored.size_bytes = sum(len(encode(part)) for part in kept)
        stored.expires_s = self._clock() + lifetime_s
        self._found[stored.response.id] = stored
        self.size_bytes += stored.size_bytes

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
        self._forget(response_id)
        if self._shelf is not None:
            self._shelf.drop(response_id)

    def _forget(self, response_id: str) -> None:
        stored = self._found.pop(response_id, None)
        if stored is not None:
            self.size_bytes -= stored.size_bytes

    def num_running(self) -> int:
        """Responses that are being worked on in the background."""
        return sum(stored.task is not None for stored in self._found.values())

    async def close(self) -> None:
        """Stop the work in the background; return when all that is kept is on disk."""
        tasks = [stored.task for stored in self._found.values() if stored.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._shelf is not None:
            await asyncio.to_thread(self._shelf.close)

    def _shrink(self) -> None:
        now = self._clock()
        for response_id in [i for i, stored in self._found.items() if stored.task is None]:
            full = len(self._found) > self._max_responses or self.size_bytes > self._max_bytes
            if not full and self._found[response_id].expires_s > now:
                return
            self.drop(response_id)

"""All batches of the server: one runs, the others wait in the order in which they came."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import msgspec
from starlette.types import ASGIApp

from octavo.batch import Answer, Item
from octavo.serving.batches.batch import Batch
from octavo.serving.batches.work import BatchWork
from octavo.serving.context import Serving, in_background
from octavo.serving.errors import ApiError
from octavo.serving.files import FileStore, new_id, told_if_full, write_whole
from octavo.serving.inner import call_route
from octavo.serving.json import encode

MAX_OPEN = 100  # batches that are not over
BUSY = frozenset({429, 503})
BUSY_WAIT_S = 1.0
MAX_BUSY_TRIES = 60

_log = logging.getLogger("octavo.serving")


class Batches:
    """Records in `folder`. `start` takes up what an earlier run left; `stop` leaves it again.

    concurrency: requests of a batch that run at once while no client waits for anything; with
    clients about, a quarter of it.
    """

    def __init__(self, folder: Path, files: FileStore, serving: Serving, concurrency: int) -> None:
        self._folder, self._files, self._serving = folder, files, serving
        self._concurrency = concurrency
        folder.mkdir(parents=True, exist_ok=True)
        self._batches: dict[str, Batch] = {}
        self._new = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._load()

    def start(self, app: ASGIApp) -> None:
        """Begin to work; `app` answers the requests."""
        self._task = asyncio.create_task(self._work(app), name="batches")

    async def stop(self) -> None:
        """Leave what is not done to the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def all(self, owner: str) -> list[Batch]:
        """The owner's batches, oldest first."""
        return [batch for batch in self._batches.values() if batch.owner == owner]

    def get(self, batch_id: str, owner: str) -> Batch:
        """One of the owner's batches. Raises 404."""
        found = self._batches.get(batch_id)
        if found is None or found.owner != owner:
            shown = batch_id[:80].encode("ascii", "backslashreplace").decode()
            message = f"There is no batch '{shown}'."
            raise ApiError(404, message, param="batch_id", code="batch_not_found")
        return found

    def create(
        self,
        endpoint: str,
        input_file_id: str,
        metadata: dict[str, str],
        owner: str,
        output_lifetime_s: int | None = None,
    ) -> Batch:
        """Queue a batch. Raises 429 if too many are open."""
        if sum(not batch.is_over for batch in self._batches.values()) >= MAX_OPEN:
            message = f"There are {MAX_OPEN} batches that are not done; try again later."
            raise ApiError(
                429, message, kind="rate_limit_error", code="too_many_batches", retry_after_s=60
            )
        batch = Batch(
            id=new_id("batch_"),
            endpoint=endpoint,
            input_file_id=input_file_id,
            created_at=int(time.time()),
            output_id=new_id(),
            error_id=new_id(),
            metadata=metadata,
            owner=owner,
            output_lifetime_s=output_lifetime_s,
        )
        with told_if_full():
            self._write(batch)
        self._batches[batch.id] = batch
        self._new.set()
        return batch

    def cancel(self, batch: Batch) -> None:
        """Stop a batch soon. Raises 409 if it is over."""
        if batch.is_over:
            message = f"The batch is {batch.status}; it cannot be cancelled."
            raise ApiError(409, message, param="batch_id", code="batch_is_over")
        if batch.status != "cancelling":
            batch.enter("cancelling")
            self._save(batch)

    def user_of(self, file_id: str) -> str | None:
        """The batch that still reads a file."""
        users = (b.id for b in self._batches.values() if b.input_file_id == file_id)
        return next((user for user in users if not self._batches[user].is_over), None)

    def _load(self) -> None:
        found = []
        for path in self._folder.glob("batch_*.json"):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Batch))
            except (OSError, msgspec.MsgspecError) as error:
                _log.error("batches: %s is left out: %s", path, error)
        self._batches = {b.id: b for b in sorted(found, key=lambda b: (b.created_at, b.id))}

    def _save(self, batch: Batch) -> None:
        """Keep the record. On a full disk it lives on in memory until its next change."""
        try:
            self._write(batch)
        except OSError as error:
            _log.error("batches: the record of %s cannot be kept: %s", batch.id, error)

    def _write(self, batch: Batch) -> None:
        write_whole(self._folder / f"{batch.id}.json", msgspec.json.encode(batch))

    async def _work(self, app: ASGIApp) -> None:
        in_background.set(True)
        while True:
            batch = next((b for b in self._batches.values() if not b.is_over), None)
            if batch is None:
                self._new.clear()
                await self._new.wait()
                continue
            await self._run(app, batch)

    async def _run(self, app: ASGIApp, batch: Batch) -> None:
        async def call(item: Item) -> Answer:
            return await self._call(app, item, batch.owner)

        work = BatchWork(batch, self._files, self._save)
        try:
            await work.run(call, self._limit, lambda: self._serving.is_draining)
        except Exception as error:  # a fault of ours or of the disk: it ends this batch only
            _log.exception("batch %s failed", batch.id)
            batch.failures.append(
                {"code": "server_error", "message": str(error)[:500], "param": None, "line": None}
            )
            batch.outcome = "failed"
            await work.publish()

    def _limit(self) -> int:
        """How many requests of a batch may run now."""
        if self._serving.waiting_for is not None:
            return 0
        if self._serving.num_interactive == 0:
            return self._concurrency
        return max(1, self._concurrency // 4)

    async def _call(self, app: ASGIApp, item: Item, owner: str) -> Answer:
        for _ in range(MAX_BUSY_TRIES):
            status, body = await call_route(app, item.url, encode(item.body), owner)
            if status not in BUSY:
                break
            await asyncio.sleep(BUSY_WAIT_S)
        return Answer(status, body)

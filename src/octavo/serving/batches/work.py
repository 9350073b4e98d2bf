"""One batch on its way: from its input file to its output and error files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from octavo.batch import (
    Answer,
    BadLine,
    Item,
    Journal,
    Tally,
    bad_line_record,
    count_lines,
    is_good,
    read_items,
    run_items,
)
from octavo.batch.journal import JournalError
from octavo.serving.batches.batch import Batch, Status
from octavo.serving.errors import ApiError
from octavo.serving.files import OUTPUT_PURPOSE, FileStore

MAX_REQUESTS = 50_000
FULL_WAIT_S = 5.0  # until a full disk is tried again

_log = logging.getLogger("octavo.serving")
Call = Callable[[Item], Awaitable[Answer]]


class BatchWork:
    """Runs a batch to its end. What is done is on the disk at once; a new BatchWork for the same
    batch goes on from there. save: keeps the batch's own record.
    """

    def __init__(self, batch: Batch, files: FileStore, save: Callable[[Batch], None]) -> None:
        self.batch, self._files, self._save = batch, files, save
        self._tally = Tally()
        self._folder = files.work_folder

    async def run(
        self, call: Call, limit: Callable[[], int], is_leaving: Callable[[], bool]
    ) -> None:
        """Returns when the batch is over. Cancelling leaves it to be resumed; so does is_leaving(),
        which raises CancelledError."""
        batch = self.batch
        if batch.outcome is None:
            if not await asyncio.to_thread(self._validate):
                return
            with ExitStack() as stack:
                ids = (batch.output_id, batch.error_id)
                journals = [stack.enter_context(self._journal(i)) for i in ids]
                batch.count(self._tally)
                outcome = await self._answer(journals, call, limit, is_leaving)
                if outcome == "expired":
                    await self._tell_expired(journals[1])
            self._settle(outcome)
        await self.publish()

    async def publish(self) -> None:
        """Make the results the owner's files; then the batch is over."""
        batch = self.batch
        batch.has_output = await self._publish(batch.output_id, "output")
        batch.has_errors = await self._publish(batch.error_id, "error")
        batch.enter(batch.outcome or "failed")
        self._save(batch)

    def _journal(self, file_id: str) -> Journal:
        return Journal(self._folder / f"{file_id}.jsonl", self._tally.add)

    def _validate(self) -> bool:
        """Count the lines; a batch that cannot be run at all fails here."""
        batch = self.batch
        path = self._files.path(batch.input_file_id)
        if not path.is_file():
            return self._fail("input_file_missing", "The input file is gone.")
        if batch.total:
            return True  # resumed
        with path.open("rb") as file:
            batch.total = count_lines(file)
        if batch.total == 0:
            return self._fail("empty_file", "The input file has no lines.")
        if batch.total > MAX_REQUESTS:
            message = f"The input file has {batch.total:,} lines; {MAX_REQUESTS:,} are allowed."
            return self._fail("too_many_requests", message)
        if batch.status == "validating":  # not cancelled meanwhile
            batch.enter("in_progress")
            self._save(batch)
        return True

    def _fail(self, code: str, message: str) -> bool:
        failure = {"code": code, "message": message, "param": "input_file_id", "line": None}
        self.batch.failures.append(failure)
        self.batch.enter("failed")
        self._save(self.batch)
        return False

    async def _answer(
        self,
        journals: list[Journal],
        call: Call,
        limit: Callable[[], int],
        is_leaving: Callable[[], bool],
    ) -> Status:
        """Run the items and say what became of the batch."""
        batch = self.batch

        async def keep(record: dict[str, Any]) -> None:
            await self._append(journals[0] if is_good(record) else journals[1], record)

        path = self._files.path(batch.input_file_id)
        with path.open("rb") as file:
            items = read_items(file, batch.endpoint)
            work = asyncio.create_task(run_items(items, self._tally, call, keep, limit))
            try:
                while not work.done():
                    if is_leaving():
                        raise asyncio.CancelledError
                    if batch.status == "cancelling":
                        return "cancelled"
                    if time.time() >= batch.expires_at:
                        return "expired"
                    await asyncio.wait({work}, timeout=0.1)
                work.result()
                return "completed"
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _append(self, journal: Journal, record: dict[str, Any]) -> None:
        """On a full disk wait for room: nothing that was computed is thrown away."""
        told = False
        while True:
            try:
                journal.append(record)
                break
            except JournalError as error:
                if not told:
                    _log.error("batch %s waits for room: %s", self.batch.id, error)
                told = True
                await asyncio.sleep(FULL_WAIT_S)
        self._tally.add(record)
        self.batch.count(self._tally)

    async def _tell_expired(self, journal: Journal) -> None:
        """Requests that were not run are told in the error file. (Those of a cancelled batch are
        left out, as OpenAI does.)"""
        message = "This request could not be executed before the completion window expired."
        with self._files.path(self.batch.input_file_id).open("rb") as file:
            for item in read_items(file, self.batch.endpoint):
                if not self._tally.settles(item):
                    line = BadLine(item.line, item.custom_id, "batch_expired", message)
                    await self._append(journal, bad_line_record(line))

    def _settle(self, outcome: Status) -> None:
        """From here on a restart does not run requests again."""
        self.batch.outcome = outcome
        if outcome == "completed":
            self.batch.enter("finalizing")
        self._save(self.batch)

    async def _publish(self, file_id: str, kind: str) -> bool:
        """Make a journal a file of the owner, unless it is empty. Waits while the disk is full."""
        path = self._folder / f"{file_id}.jsonl"
        if not path.is_file():
            return self._files.path(file_id).is_file()  # published before a restart
        if path.stat().st_size == 0:
            path.unlink()
            return False
        name, owner = f"{self.batch.id}_{kind}.jsonl", self.batch.owner
        lifetime_s = self.batch.output_lifetime_s
        while True:
            try:
                self._files.keep(path, name, OUTPUT_PURPOSE, owner, lifetime_s, file_id)
                return True
            except ApiError as error:
                _log.error("batch %s waits for room: %s", self.batch.id, error)
                await asyncio.sleep(FULL_WAIT_S)

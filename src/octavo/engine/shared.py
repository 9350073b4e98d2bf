"""One engine without a thread of its own: whoever waits for tokens drives it for everybody."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from octavo.engine.engine import Engine
from octavo.engine.types import Delta, Request

T = TypeVar("T")


class Mailbox:
    """Where the deltas of one caller's requests arrive."""

    def __init__(self) -> None:
        self.deltas: deque[Delta] = deque()
        self.closed = False


class SharedEngine:
    """Serializes access to an Engine. Any thread may call; one of them steps at a time, and what
    the step gives to others waits in their mailboxes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        self._dropped: deque[str] = deque()  # to be aborted by whoever holds the lock next

    def add(self, request: Request, mailbox: Mailbox) -> None:
        """Queue a request. Raises RequestError subclasses."""
        with self._lock:
            self._abort_dropped()
            self._engine.add_request(request)
            self._boxes[request.request_id] = mailbox

    def add_some(self, requests: deque[Request], mailbox: Mailbox) -> None:
        """Move requests from the left of a queue into the engine, as many as its own queue takes.
        They have been checked before."""
        engine = self._engine
        with self._lock:
            while requests and engine.has_room(requests[0]):
                engine.add_request(requests[0])
                self._boxes[requests[0].request_id] = mailbox
                requests.popleft()

    def take(self, mailbox: Mailbox) -> list[Delta]:
        """New deltas of a mailbox; steps the engine until there are some. Empty if the mailbox was
        closed or nothing is left to do."""
        with self._lock:
            while not mailbox.deltas and not mailbox.closed:
                self._abort_dropped()
                if not self._engine.has_work():
                    break
                self._step()
            deltas = list(mailbox.deltas)
            mailbox.deltas.clear()
            self._abort_dropped()
        return deltas

    def drop(self, mailbox: Mailbox, request_ids: Iterable[str]) -> None:
        """Close a mailbox and abort its requests: now, or when the step in progress is over."""
        mailbox.closed = True
        self._dropped.extend(request_ids)
        if self._lock.acquire(blocking=False):
            try:
                self._abort_dropped()
            finally:
                self._lock.release()

    def call(self, command: Callable[[Engine], T]) -> T:
        """Run a function on the engine between two steps."""
        with self._lock:
            self._abort_dropped()
            return command(self._engine)

    def _step(self) -> None:
        try:
            deltas = self._engine.step()
        except BaseException:  # KeyboardInterrupt, mostly: what the step had begun is undone
            self._engine.abort_all()
            raise
        for delta in deltas:
            if (mailbox := self._boxes.get(delta.request_id)) is not None:
                mailbox.deltas.append(delta)
                if delta.metrics is not None:  # the request's last delta
                    del self._boxes[delta.request_id]

    def _abort_dropped(self) -> None:
        while self._dropped:
            request_id = self._dropped.popleft()
            if self._boxes.pop(request_id, None) is not None:
                self._engine.abort(request_id)

"""Which requests have run out of time."""

from __future__ import annotations

import time
from heapq import heappop, heappush

from octavo.engine.sample import RequestState
from octavo.engine.types import Request
from octavo.errors import DeadlineError


class Deadlines:
    """Moments by which requests want their first or their last token, the nearest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, RequestState, bool]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, state: RequestState) -> None:
        """Watch a request."""
        request = state.request
        if request.ttft_deadline_s is not None and not state.told:
            self._push(request.ttft_deadline_s, state, True)
        if request.deadline_s is not None:
            self._push(request.deadline_s, state, False)

    def expired(self) -> list[tuple[RequestState, DeadlineError]]:
        """Requests that have missed a deadline since the last call."""
        now, found = time.monotonic(), []
        while self._heap and self._heap[0][0] <= now:
            _, _, state, is_first = heappop(self._heap)
            if state.num_live and not (is_first and state.told):
                queued = state.num_cached is None
                found.append((state, deadline_error(state.request, is_first, queued)))
        return found

    def _push(self, moment: float, state: RequestState, is_first: bool) -> None:
        self._count += 1
        heappush(self._heap, (moment, self._count, state, is_first))


def deadline_error(request: Request, is_first: bool, queued: bool) -> DeadlineError:
    """What a request ends with that has missed a deadline. is_first: that of its first token."""
    name = "ttft_deadline" if is_first else "deadline"
    where = "while it waited in the queue" if queued else "while it ran"
    return DeadlineError(f"engine: {request.request_id} missed its {name} {where}", queued)

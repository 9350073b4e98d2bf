"""The door of the queue: who is let in, and when the others may come again. Given a clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from octavo.errors import DeadlineError, QueueFullError

_WINDOW = 64  # departures a rate is measured over
_MIN_DEPARTURES = 4
MAX_RETRY_S = 60.0
OVERDRAW = 2  # times the bounds, for tenants that hold less than their share


class Queue(NamedTuple):
    """What waits for rows and blocks. free_rows: sequences that could start at once."""

    num_requests: int
    num_tokens: int
    free_rows: int = 0


class DrainRate:
    """How fast the queue empties, measured over what left it lately while others still waited."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._tokens = 0

    def left(self, now: float, num_tokens: int, others_wait: bool) -> None:
        """A request of so many prompt tokens has left the queue."""
        if not others_wait:  # it drains as fast as it fills: no measure of what the engine can do
            self._left.clear()
            self._tokens = 0
            return
        if len(self._left) == _WINDOW:
            self._tokens -= self._left[0][1]
        self._left.append((now, num_tokens))
        self._tokens += num_tokens

    def requests_per_s(self, now: float) -> float | None:
        """None while nothing is known."""
        return self._per_s(now, len(self._left) - 1)

    def tokens_per_s(self, now: float) -> float | None:
        """None while nothing is known."""
        return self._per_s(now, self._tokens - (self._left[0][1] if self._left else 0))

    def _per_s(self, now: float, amount: int) -> float | None:
        if len(self._left) < _MIN_DEPARTURES or now <= self._left[0][0]:
            return None
        return amount / (now - self._left[0][0]) or None


class Gate:
    """Bounds of the queue. A tenant that holds less than its share of a full queue is let in all
    the same, up to OVERDRAW times the bounds, so that one tenant's flood shuts out nobody else."""

    def __init__(
        self, max_requests: int, max_tokens: int, weights: Mapping[str, float] | None = None
    ) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._weights = weights or {}
        self.rate = DrainRate()
        self._waiting: Counter[str] = Counter()  # by tenant, requests that have shown nothing
        self._tokens: Counter[str] = Counter()
        self._promised = 0.0

    def entered(self, tenant: str, num_tokens: int) -> None:
        """A request has been let in."""
        self._waiting[tenant] += 1
        self._tokens[tenant] += num_tokens

    def started(self, tenant: str, num_tokens: int) -> None:
        """It has left the queue, one way or the other."""
        self._waiting[tenant] -= 1
        self._tokens[tenant] -= num_tokens
        if self._waiting[tenant] <= 0:
            del self._waiting[tenant], self._tokens[tenant]

    def check(self, now: float, queue: Queue, tenant: str, num_tokens: int) -> None:
        """Raise QueueFullError, with the time to come again, if there is no room for a request."""
        excess = queue.num_tokens + num_tokens - self._max_tokens if queue.num_requests else 0
        if not (self._is_full(queue) or excess > 0) or self._may_overdraw(queue, tenant):
            return
        retry_s = self.retry_after_s(now, queue, excess)
        raise QueueFullError(
            f"engine: {queue.num_requests:,} requests with {queue.num_tokens:,} tokens are waiting "
            f"already; retry in {retry_s:.0f} s",
            retry_s,
        )

    def check_deadline(self, now: float, tenant: str, num_tokens: int, deadline_s: float) -> None:
        """Raise DeadlineError if the first token cannot be out by then: the tenant's own requests
        before it, drained twice as fast as of late, take longer. Without a measure nothing is
        refused."""
        rate = self.rate.tokens_per_s(now)
        if rate is None or not self._waiting[tenant]:
            return
        needed_s = (self._tokens[tenant] + num_tokens) / (2 * rate)
        if now + needed_s > deadline_s:
            raise DeadlineError(
                f"engine: the first token cannot be out within ttft_deadline: "
                f"{self._waiting[tenant]:,} requests wait before it, for {needed_s:.1f} s at least",
                queued=True,
            )

    def is_full(self, queue: Queue) -> bool:
        """Whether a request of an ordinary tenant would be refused now."""
        return self._is_full(queue) or queue.num_tokens >= self._max_tokens

    def retry_after_s(
        self, now: float, queue: Queue, num_tokens: int = 0, promise: bool = True
    ) -> float:
        """Seconds until there will be room, at the rate the queue drains at. Who is refused is
        given the next place that is not promised to somebody yet."""
        rate = self.rate.requests_per_s(now)
        if rate is None:
            return 1.0
        all_s = min(MAX_RETRY_S, max(1.0, queue.num_requests / rate))
        wait_s = min(max(self._promised - now, 0.0) + 1 / rate, all_s)
        if promise:
            self._promised = now + wait_s
        token_rate = self.rate.tokens_per_s(now)
        if token_rate is not None:
            wait_s = max(wait_s, num_tokens / token_rate)
        return float(min(MAX_RETRY_S, max(1, math.ceil(wait_s))))

    def _is_full(self, queue: Queue) -> bool:
        return queue.num_requests >= self._max_requests + queue.free_rows

    def _may_overdraw(self, queue: Queue, tenant: str) -> bool:
        if queue.num_requests >= OVERDRAW * self._max_requests + queue.free_rows:
            return False
        if queue.num_tokens >= OVERDRAW * self._max_tokens:
            return False
        others = sum(self._weight(name) for name in self._waiting if name != tenant)
        share = self._weight(tenant) / (self._weight(tenant) + others)
        few = self._waiting[tenant] + 1 <= share * self._max_requests
        return bool(others) and few and self._tokens[tenant] <= share * self._max_tokens

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

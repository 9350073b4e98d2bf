"""Finds the request an engine crashes of, among all that ran when it did. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable

_GROWTH = 16  # a trial that proved nothing is repeated with this many times its tokens


class Blame:
    """Counts, for each request, the crashes in whose step it was.

    From a request's second crash on, requests like it are tried one at a time: the engine runs
    nothing else until the request has come `trial_tokens` beyond where it stood, or has ended. So a
    crash then has one possible cause, and at its `limit`-th crash that request is convicted. Those
    that pass run together again. Requests that only waited are never tried.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._crashes: dict[str, int] = {}
        self._suspects: list[str] = []  # still to be tried; the first one is on trial
        self._progress = 0
        self.trial_tokens = 1
        self._round = 0

    @property
    def on_trial(self) -> str | None:
        """The one request that may run; None when all may."""
        return self._suspects[0] if self._suspects else None

    def may_run(self, request_id: str) -> bool:
        """Whether the engine may have this request now."""
        return not self._suspects or self._suspects[0] == request_id

    def crashed(self, members: Iterable[str]) -> str | None:
        """The engine died while at these requests. Returns the one to be given up, if any."""
        found = list(dict.fromkeys(members))
        for request_id in found:
            self._crashes[request_id] = self._crashes.get(request_id, 0) + 1
        if len(found) == 1 and self._crashes[found[0]] >= self.limit:
            self.forget(found[0])
            self._progress = 0
            return found[0]
        if not self._suspects and any(self._crashes[one] > 1 for one in found):
            self.trial_tokens = _GROWTH**self._round
            self._round += 1
            self._suspects = found
        self._progress = 0
        return None

    def saw(self, request_id: str, num_tokens: int) -> bool:
        """A request has shown new tokens. True if that ends its trial: it is to be taken out, and
        the next one is on trial."""
        if request_id != self.on_trial:
            return False
        self._progress += num_tokens
        if self._progress < self.trial_tokens:
            return False
        self._next()
        return True

    def forget(self, request_id: str) -> None:
        """The request is over."""
        self._crashes.pop(request_id, None)
        if request_id == self.on_trial:
            self._next()
        elif request_id in self._suspects:
            self._suspects.remove(request_id)
        if not self._crashes:
            self._round = 0

    def _next(self) -> None:
        self._suspects.pop(0)
        self._progress = 0

"""Stop strings in a stream: found wherever chunks are cut, never shown in part."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Watches one text for stop strings. The outcome does not depend on how the text is chunked.

    The stop string that is complete first wins (of those that end at the same place, the longest),
    and the text ends before it, or after it with `include`. Only the longest end of the text that
    may still grow into a stop string is held back. Empty stop strings are ignored.
    Not safe to share between threads. Cost is proportional to the new text.
    """

    __slots__ = ("_held", "_include", "_last_chars", "_lengths", "_prefixes", "_stops", "matched")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        # Longest first: the first of several matches with the same end is then the longest.
        self._stops = sorted({stop for stop in stops if stop}, key=len, reverse=True)
        self._include = include
        self._prefixes = {stop[:size] for stop in self._stops for size in range(1, len(stop))}
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._last_chars = frozenset(prefix[-1] for prefix in self._prefixes)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that is safe to show now, and the stop string once one is found.

        After a match all further text is dropped.
        """
        if self.matched is not None or not text:
            return "", self.matched
        if not self._stops:
            return text, None
        text = self._held + text
        end, self.matched = self._find(text)
        if self.matched is not None:
            self._held = ""
            return text[: end if self._include else end - len(self.matched)], self.matched
        safe = len(text) - self._num_held(text)
        self._held = text[safe:]
        return text[:safe], None

    def finish(self) -> str:
        """What was held back, now that no stop string can follow; empty after a match."""
        held, self._held = self._held, ""
        return held

    def _find(self, text: str) -> tuple[int, str | None]:
        """Where the stop string that ends first ends, and which it is; (-1, None) without one."""
        best, found = -1, None
        for stop in self._stops:
            at = text.find(stop)
            if at >= 0 and (best < 0 or at + len(stop) < best):
                best, found = at + len(stop), stop
        return best, found

    def _num_held(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        if text[-1] not in self._last_chars:
            return 0
        for length in self._lengths:
            if length <= len(text) and text[-length:] in self._prefixes:
                return length
        return 0

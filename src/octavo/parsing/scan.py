"""The text of an answer, read by parsers that wait where it has not come yet.

A parser is a generator: it is written as if the whole text were there, and `yield from` suspends it
until it is. So where the text was cut makes no difference to what it does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""A parser that may wait; `yield from` gives its result."""

Show = Callable[[str], None]

MAX_TRIMMED = 64
"""Blanks before a marker that are not shown. A longer run is shown but for its end: what is held
back stays small."""

SPACE = re.compile(r"\s*")
_IN_STRING = re.compile(r'[^"\\]*')
_BETWEEN = re.compile(r"[\s\w+\-.:,]*")
_SCALAR = re.compile(r"[\w+\-.]*")
_CLOSERS = {"{": "}", "[": "]"}


class Markers:
    """Texts to look for. None may begin with another."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        self._pattern = re.compile("|".join(map(re.escape, self.texts)) or r"(?!)")
        self._beginnings = {text[:size] for text in self.texts for size in range(1, len(text))}
        self._longest = max(map(len, self.texts), default=0)

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The first one in text[start:]."""
        return self._pattern.search(text, start)

    def num_held(self, text: str, start: int) -> int:
        """Characters at the end of text[start:] that may be the beginning of one."""
        for size in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0


class Scan:
    """Text that has come and has not been taken yet. Positions count from the answer's start."""

    def __init__(self) -> None:
        self._text, self._base, self._at = "", 0, 0
        self._marks: list[float] = []
        self.ended = False
        self.hit_end = False
        """Whether a parser has asked for more at the end of the text."""
        self.trimmed = ""
        """The blanks before the latest marker that were not shown."""

    def feed(self, text: str) -> None:
        """Add what came."""
        keep = int(min([*self._marks, self._base + self._at])) - self._base
        self._text = self._text[keep:] + text
        self._base, self._at = self._base + keep, self._at - keep

    def mark(self) -> None:
        """Keep the text from here on, until `forget`, `rewind` or `commit`."""
        self._marks.append(self._base + self._at)

    def taken(self) -> str:
        """What was taken since the latest mark, which no `commit` may have settled."""
        return self._text[int(self._marks[-1]) - self._base : self._at]

    def forget(self) -> None:
        """Drop the latest mark."""
        self._marks.pop()

    def rewind(self) -> None:
        """Back to the latest mark, which is dropped; but not behind a `commit`."""
        mark = self._marks.pop()
        if mark != math.inf:
            self._at = int(mark) - self._base

    def commit(self) -> None:
        """What has been read so far is settled: none of the marks will be gone back to."""
        self._marks = [math.inf] * len(self._marks)

    def more(self) -> Steps[bool]:
        """Wait for more text; False once there is none."""
        if self.ended:
            self.hit_end = True
            return False
        yield
        return True

    def peek(self, count: int = 1) -> Steps[str]:
        """The next characters; fewer only at the end of the text."""
        while len(self._text) - self._at < count and (yield from self.more()):
            pass
        return self._text[self._at : self._at + count]

    def take(self, count: int, show: Show) -> None:
        """Show characters that `peek` has seen."""
        show(self._text[self._at : self._at + count])
        self._at += count

    def skip(self, count: int) -> None:
        """Drop characters that `peek` has seen."""
        self._at += count

    def run(self, pattern: re.Pattern[str], show: Show | None = None) -> Steps[str]:
        """Take what a pattern `[...]*` matches and show it as it comes, or else return it."""
        taken: list[str] = []
        while True:
            matched = pattern.match(self._text, self._at)
            end = matched.end() if matched else self._at
            if end > self._at:
                (show or taken.append)(self._text[self._at : end])
                self._at = end
            if self._at < len(self._text) or not (yield from self.more()):
                return "".join(taken)

    def literal(self, *options: str) -> Steps[str | None]:
        """Take whichever option comes next, the longest of them; None if none does."""
        longest = max(map(len, options))
        while True:
            rest = self._text[self._at : self._at + longest]
            open_ended = any(len(o) > len(rest) and o.startswith(rest) for o in options)
            if not open_ended or not (yield from self.more()):
                break
        found = max((o for o in options if rest.startswith(o)), key=len, default=None)
        self._at += len(found or "")
        return found

    def until(self, markers: Markers, show: Show, *, trim: bool = False) -> Steps[str | None]:
        """Show the text up to the first marker and take that; None at the end of the text. With
        `trim` blanks right before a marker are not shown."""
        while True:
            found = markers.find(self._text, self._at)
            end = found.start() if found else len(self._text)
            if found is None:
                end -= markers.num_held(self._text, self._at)
            blank = _num_blank(self._text, self._at, end) if trim else 0
            self.trimmed = self._text[end - blank : end]
            end -= blank
            if end > self._at:
                show(self._text[self._at : end])
                self._at = end
            if found is not None:
                self._at = found.end()
                return found.group()
            if not (yield from self.more()):
                self.rest(show)
                return None

    def back(self, count: int) -> None:
        """Undo the taking of what was taken last."""
        self._at -= count

    def rest(self, show: Show) -> None:
        """Show all that has come."""
        if self._at < len(self._text):
            show(self._text[self._at :])
            self._at = len(self._text)

    def json_value(self, show: Show) -> Steps[bool]:
        """Show a JSON value as it comes; False where it breaks off. Brackets must pair and strings
        must end; that is all that is checked."""
        closers: list[str] = []
        while True:
            if closers:
                yield from self.run(_BETWEEN, show)
            char = yield from self.peek()
            if char == '"':
                if (yield from self.json_string(show)) is False:
                    return False
            elif char in ("{", "["):
                closers.append(_CLOSERS[char])
                self.take(1, show)
            elif char and closers and char == closers[-1]:
                closers.pop()
                self.take(1, show)
            elif closers or not char or not _SCALAR.fullmatch(char):
                return False
            else:
                yield from self.run(_SCALAR, show)
            if not closers:
                return True

    def json_string(self, show: Show) -> Steps[bool]:
        """Show a JSON string, from its first quote to its last; False if it has no end."""
        self.take(1, show)
        while True:
            yield from self.run(_IN_STRING, show)
            pair = yield from self.peek()
            if pair == "\\":
                pair = yield from self.peek(2)
            self.take(len(pair), show)
            if pair == '"':
                return True
            if len(pair) < 2:
                return False


def _num_blank(text: str, start: int, end: int) -> int:
    """Blanks at the end of text[start:end], at most MAX_TRIMMED."""
    tail = text[max(start, end - MAX_TRIMMED) : end]
    return len(tail) - len(tail.rstrip())

"""Parser: what every format's reader writes to, and what drives it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from octavo.parsing.parts import Part, ReasoningPart, TextPart, ToolCallPart
from octavo.parsing.scan import Scan, Show, Steps
from octavo.parsing.tools import Tool


def new_call_id() -> str:
    """As OpenAI writes them: "call_" and 24 hexadecimal digits."""
    return f"call_{uuid.uuid4().hex[:24]}"


class Output:
    """Where a reader puts what it found. tools: what may be called, by name."""

    def __init__(self, tools: Sequence[Tool] = (), new_id: Callable[[], str] = new_call_id) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.num_calls = 0
        self.shown = False
        """Whether there has been text."""
        self.thinking = False
        """Whether the reader is within the thinking."""
        self._new_id = new_id
        self._parts: list[Part] = []

    def text(self, text: str) -> None:
        """More of the answer."""
        if text:
            self.shown = True
            self._add(TextPart(text))

    def reasoning(self, text: str) -> None:
        """More of the thinking."""
        if text:
            self._add(ReasoningPart(text))

    def begin_call(self, name: str) -> None:
        """A call whose name is certain."""
        self._parts.append(ToolCallPart(self.num_calls, "", self._new_id(), name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """More of the latest call's arguments."""
        if text:
            self._add(ToolCallPart(self.num_calls - 1, text))

    def take(self) -> list[Part]:
        """The parts since the last time, neighbours of a kind joined."""
        parts, self._parts = self._parts, []
        return parts

    def _add(self, part: Part) -> None:
        joined = _joined(self._parts[-1], part) if self._parts else None
        if joined is None:
            self._parts.append(part)
        else:
            self._parts[-1] = joined


def _joined(first: Part, second: Part) -> Part | None:
    """Both as one part, if they are of a kind."""
    match first, second:
        case TextPart(one), TextPart(two):
            return TextPart(one + two)
        case ReasoningPart(one), ReasoningPart(two):
            return ReasoningPart(one + two)
        case ToolCallPart(place, one, call_id, name), ToolCallPart(other, two, None, None):
            return ToolCallPart(place, one + two, call_id, name) if place == other else None
    return None


Reader = Callable[[Scan, Output], Steps[None]]
"""Reads a whole answer."""


class Reading:
    """A reader at work on text that comes piece by piece."""

    def __init__(self, read: Callable[[Scan], Steps[None]]) -> None:
        self._scan = Scan()
        self._steps = read(self._scan)
        self._done = False

    def feed(self, text: str) -> None:
        """More text; the reader goes as far as it can."""
        if text:
            self._scan.feed(text)
            self._go_on()

    def end(self) -> None:
        """There is no more; the reader comes to its end."""
        self._scan.ended = True
        while not self._done:
            self._go_on()

    def rest(self, show: Show) -> None:
        """Show what the reader has left."""
        self._scan.rest(show)

    def _go_on(self) -> None:
        try:
            if not self._done:
                next(self._steps)
        except StopIteration:
            self._done = True


class StreamParser:
    """A Parser around a reader."""

    def __init__(self, read: Reader, output: Output) -> None:
        self._output = output
        self._reading = Reading(lambda scan: read(scan, output))

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thinking, as far as is known."""
        return self._output.thinking

    def push(self, text: str, token_ids: list[int]) -> list[Part]:
        """Parts that are certain now."""
        self._reading.feed(text)
        return self._output.take()

    def finish(self) -> list[Part]:
        """What was held back."""
        self._reading.end()
        self._reading.rest(self._output.text)
        return self._output.take()


def attempt(scan: Scan, output: Output, steps: Steps[bool]) -> Steps[bool]:
    """Try to read calls. If none was begun the text is as it was before, and the result False."""
    before = output.num_calls
    scan.mark()
    yield from steps
    if output.num_calls == before:
        scan.rewind()
        return False
    scan.forget()
    return True

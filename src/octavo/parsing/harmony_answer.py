"""Reads harmony answers: cuts them into messages and says what each one means.

Malformed answers lose no text. A message may end by the beginning of the next one. A header that
breaks the format, or is not followed by "<|message|>", ends where it does, and what follows is the
message's content; text where no message has begun is text of the answer. Only what is part of a
header (role, recipient, channel, type of content), the control tokens and blanks beside them are
left out. Roles do not matter: what the model writes in another's name is its answer still.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from octavo.parsing.harmony import ANALYSIS, CALL, CHANNEL, END, MESSAGE, RETURN, START
from octavo.parsing.harmony_header import Header, read_header
from octavo.parsing.scan import SPACE, Markers, Scan, Show, Steps
from octavo.parsing.stream import Output, Reading

_ENDS = (END, CALL, RETURN)
_BODY = Markers((*_ENDS, START))
_STRAY = Markers((*_ENDS, START, CHANNEL, MESSAGE))
_FUNCTION = re.compile(r"functions\.([\w.\-]+)")
_INK = re.compile(r"\S*")


class MessageReader(Protocol):
    """Reads the messages of one answer. What it is given is well-formed: malformed headers have
    been repaired."""

    def begin(self, header: Header) -> tuple[str | None, str | None]:
        """A message's (channel, recipient)."""
        ...

    def content(self, text: str) -> str:
        """More of its content."""
        ...

    def end(self, marker: str) -> None:
        """It is over. marker: the control token that ends it."""
        ...


class OwnMessages:
    """A MessageReader for every vocabulary: headers have been read, content is as it is."""

    def begin(self, header: Header) -> tuple[str | None, str | None]:
        """As the header says."""
        return header.channel, header.recipient

    def content(self, text: str) -> str:
        """The same."""
        return text

    def end(self, marker: str) -> None:
        """Nothing is to be done."""


class HarmonyReader:
    """Reads one answer, from right after "<|start|>assistant", with `messages`. Without tools calls
    are text."""

    def __init__(self, output: Output, with_tools: bool, messages: MessageReader) -> None:
        self._output, self._with_tools, self._messages = output, with_tools, messages
        self._shown: set[Callable[[str], None]] = set()
        self._closed = False

    def read(self, scan: Scan) -> Steps[None]:
        """A whole answer."""
        started = False
        while True:
            header = yield from read_header(scan, started)
            found = None
            if not header.is_regular:
                found = yield from scan.literal(*_ENDS, START)
                if found is None and not (yield from scan.peek()):
                    return
            found = found or (yield from self._message(header, scan))
            if found is None:
                return
            started = found == START

    def _message(self, header: Header, scan: Scan) -> Steps[str | None]:
        """A message behind its header; the marker that ended it."""
        channel, recipient = self._messages.begin(header)
        self._closed = False
        body = Reading(lambda inner: self._body(inner, channel, recipient))

        def feed(text: str) -> None:
            body.feed(self._messages.content(text))

        markers = _BODY if header.is_regular else _STRAY
        while (found := (yield from scan.until(markers, feed))) == MESSAGE:
            pass  # it came late
        if found == CHANNEL:
            scan.back(len(CHANNEL))
        self._closed = found is not None
        self._messages.end(found if found in _ENDS else END)
        body.end()
        self._output.thinking = False
        return found

    def _body(self, scan: Scan, channel: str | None, recipient: str | None) -> Steps[None]:
        """A message's content."""
        function = _FUNCTION.match(recipient or "")
        if function and self._with_tools and (yield from self._call(function[1], scan)):
            return
        is_thought = channel == ANALYSIS
        show = self._output.reasoning if is_thought else self._output.text
        self._output.thinking = is_thought
        yield from scan.until(Markers(()), self._on_new_line(show))

    def _call(self, name: str, scan: Scan) -> Steps[bool]:
        """A call's arguments; False where they are no object."""
        scan.mark()
        yield from scan.run(SPACE)
        first = yield from scan.peek()
        if first not in ("{", ""):
            scan.rewind()
            return False
        scan.forget()
        self._output.begin_call(name)
        if not first and self._closed:
            self._output.arguments("{}")
        while (yield from scan.peek()):
            yield from scan.run(_INK, self._output.arguments)
            blank = yield from scan.run(SPACE)
            if (yield from scan.peek()):
                self._output.arguments(blank)
        return True

    def _on_new_line(self, show: Show) -> Show:
        """Shows a message's text, on a new line if there was text of its kind before."""
        begun = show not in self._shown

        def separated(text: str) -> None:
            nonlocal begun
            show(text if begun else "\n" + text)
            begun = True
            self._shown.add(show)

        return separated

"""Calls written as a name, a separator and a JSON object."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.parsing.lark import Lark
from octavo.parsing.scan import SPACE, Scan, Steps
from octavo.parsing.stream import Output, attempt
from octavo.parsing.tools import Tool

_NAME = re.compile(r"[\w.\-]*")
_ID = re.compile(r"[\w.\-:]*")


@dataclass(frozen=True)
class NamedCalls:
    """begin: before each name. separator: between name and arguments. end: after them. section:
    what stands round all calls together. prefix: what may stand before the name and is no part of
    it ("functions."). kind: what stands before the name with a separator of its own
    ("function<sep>"). call_id: what a made-up id stands behind ("[CALL_ID]"). numbered: names end
    in ":" and the call's number. fence: what may stand round the arguments."""

    begin: str
    separator: str
    end: str = ""
    section: tuple[str, str] | None = None
    prefix: str = ""
    kind: str = ""
    call_id: str = ""
    numbered: bool = False
    fence: tuple[str, str] | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that begin calls."""
        return (self.section[0], self.begin) if self.section else (self.begin,)

    def read(self, marker: str, scan: Scan, output: Output) -> Steps[bool]:
        """The calls after a marker: one, or those of a section."""
        if self.section is None or marker != self.section[0]:
            return (yield from self._call(scan, output))
        before = output.num_calls
        while (yield from attempt(scan, output, self._next(scan, output))):
            pass
        if output.num_calls == before:
            return False
        scan.mark()
        yield from scan.run(SPACE)
        if (yield from scan.literal(self.section[1])):
            scan.forget()
        else:
            scan.rewind()
        return True

    def _next(self, scan: Scan, output: Output) -> Steps[bool]:
        yield from scan.run(SPACE)
        found = yield from scan.literal(self.begin)
        return found is not None and (yield from self._call(scan, output))

    def _call(self, scan: Scan, output: Output) -> Steps[bool]:
        yield from scan.run(SPACE)
        name = yield from self._name(scan)
        if not name or (yield from scan.peek()) != "{":
            return False
        output.begin_call(name)
        scan.commit()
        yield from scan.json_value(output.arguments)
        yield from self._close(scan)
        return True

    def _name(self, scan: Scan) -> Steps[str]:
        """The name, with what stands between it and its arguments; "" if there is none."""
        if self.prefix:
            yield from scan.literal(self.prefix)
        name = yield from scan.run(_NAME)
        if self.numbered:
            yield from scan.run(_ID)
        if self.call_id and (yield from scan.literal(self.call_id)):
            yield from scan.run(_ID)
        if not (yield from scan.literal(self.separator)):
            return ""
        yield from scan.run(SPACE)
        if self.kind and name == self.kind and (yield from scan.peek()) != "{":
            name = yield from scan.run(_NAME)
            yield from scan.run(SPACE)
        if self.fence and (yield from scan.literal(self.fence[0])):
            yield from scan.run(SPACE)
        return name

    def _close(self, scan: Scan) -> Steps[None]:
        """Drop what stands behind the arguments."""
        for text in (self.fence[1] if self.fence else "", self.end):
            if text:
                scan.mark()
                yield from scan.run(SPACE)
                if (yield from scan.literal(text)):
                    scan.forget()
                else:
                    scan.rewind()

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it."""
        head = f"{self.prefix}{name}"
        if self.numbered:
            head += ":0"
        if self.call_id:
            head += f"{self.call_id}000000000"
        head = f"{self.kind}{self.separator}{name}\n" if self.kind else head + self.separator
        if self.fence:
            arguments = f"{self.fence[0]}\n{arguments}\n{self.fence[1]}"
        call = f"{self.begin}{head}{arguments}{self.end}"
        return f"{self.section[0]}{call}{self.section[1]}" if self.section else call

    def call_rule(self, tool: Tool, lark: Lark) -> str:
        """A call behind its begin marker, in Lark."""
        head = f"{self.prefix}{tool.name}"
        if self.kind:
            head = f"{self.kind}{self.separator}{tool.name}\n"
        pieces = [lark.text(head)]
        if self.numbered:
            pieces += ['":" /[0-9]{1,3}/']
        if self.call_id:
            pieces += [lark.text(self.call_id), "/[A-Za-z0-9]{9}/"]
        if not self.kind:
            pieces.append(lark.text(self.separator))
        before, after = (f"{self.fence[0]}\n", f"\n{self.fence[1]}") if self.fence else ("", "")
        pieces += [lark.text(before), lark.json(tool.schema), lark.text(after + self.end)]
        return " ".join(filter(None, pieces))

    @property
    def opening(self) -> str:
        """What a grammar begins calls with."""
        return self.section[0] + self.begin if self.section else self.begin

    def calls_rule(self, call: str, lark: Lark, many: bool) -> str:
        """One or more calls behind the opening. many: whether there may be several."""
        calls = f"{call} ({lark.text(self.begin)} {call})*" if many else call
        return f"{calls} {lark.text(self.section[1])}" if self.section else calls

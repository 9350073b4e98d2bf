"""Calls written as JSON objects: {"name": ..., "arguments": {...}}, between markers or bare."""

from __future__ import annotations

import json
from dataclasses import dataclass

from octavo.parsing.lark import Lark
from octavo.parsing.scan import SPACE, Scan, Steps
from octavo.parsing.stream import Output, attempt
from octavo.parsing.tools import Tool

NAME_KEYS = ("name", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters")
KNOWN_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, "type", "id", "function", "tool_call_id"})
FENCES = ("```json", "```")


@dataclass(frozen=True)
class JsonCalls:
    """begin, end: what stands round calls; either a single object or a list of them. bare: at the
    start of an answer an object that calls a known function counts as well, without markers. The
    rest is how the model was taught to write it; only what a grammar makes it write depends on
    that: name_key, argument_key, is_list, pad (inside of the markers), unmarked (without them).
    """

    begin: str
    end: str = ""
    bare: bool = False
    unmarked: bool = False
    name_key: str = "name"
    argument_key: str = "arguments"
    is_list: bool = False
    pad: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that begin calls."""
        return (self.begin,) if self.begin else ()

    def read(self, marker: str, scan: Scan, output: Output) -> Steps[bool]:
        """The calls after a marker."""
        yield from scan.run(SPACE)
        found = yield from _objects(scan, output, known_only=False)
        if found and self.end:
            yield from _skip_end(scan, self.end)
        return found

    def read_bare(self, scan: Scan, output: Output) -> Steps[bool]:
        """Calls at the very start of an answer: bare, or in a code block."""
        yield from scan.run(SPACE)
        fence = yield from scan.literal(*FENCES)
        yield from scan.run(SPACE)
        found = yield from _objects(scan, output, known_only=True)
        if found:
            yield from _skip_end(scan, FENCES[1] if fence else self.end or FENCES[1])
        return found

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it."""
        call = f"{self._head(name)}{arguments}}}"
        if self.unmarked:
            return call
        inner = f"[{call}]" if self.is_list else call
        return f"{self.begin}{self.pad}{inner}{self.pad}{self.end}"

    def _head(self, name: str) -> str:
        return f'{{"{self.name_key}": {json.dumps(name)}, "{self.argument_key}": '

    def call_rule(self, tool: Tool, lark: Lark) -> str:
        """A call, in Lark."""
        return f"{lark.text(self._head(tool.name))} {lark.json(tool.schema)} {lark.text('}')}"

    @property
    def opening(self) -> str:
        """What a grammar begins calls with."""
        return "" if self.unmarked else self.begin

    def calls_rule(self, call: str, lark: Lark, many: bool) -> str:
        """One or more calls behind the opening. many: whether there may be several."""
        if self.unmarked:
            return f"{call} ({lark.text('; ')} {call})*" if many else call
        if self.is_list:
            rest = f"({lark.text(', ')} {call})*" if many else ""
            inner = f"{lark.text('[')} {call} {rest} {lark.text(']')}"
            return f"{lark.text(self.pad)} {inner} {lark.text(self.pad + self.end)}"
        one = f"{lark.text(self.pad)} {call} {lark.text(self.pad + self.end)}"
        return f"{one} ({lark.text(self.pad + self.begin)} {one})*" if many else one


def _skip_end(scan: Scan, end: str) -> Steps[None]:
    """Drop an end marker, if it comes."""
    scan.mark()
    yield from scan.run(SPACE)
    if (yield from scan.literal(end)):
        scan.forget()
    else:
        scan.rewind()


def _objects(scan: Scan, output: Output, known_only: bool) -> Steps[bool]:
    """One object, a list of them, or several with ";" between."""
    in_list = (yield from scan.literal("[")) is not None
    before = output.num_calls
    separators = (",",) if in_list else (";",)
    while True:
        scan.mark()
        yield from scan.run(SPACE)
        if not (yield from attempt(scan, output, read_object(scan, output, known_only))):
            scan.rewind()
            break
        scan.forget()
        scan.mark()
        yield from scan.run(SPACE)
        if not (yield from scan.literal(*separators)):
            scan.rewind()
            break
        yield from scan.run(SPACE)
        scan.forget()
    if in_list and output.num_calls > before:
        yield from _skip_end(scan, "]")
    return output.num_calls > before


def read_object(scan: Scan, output: Output, known_only: bool = False) -> Steps[bool]:
    """One object. False where it is no call, or breaks off."""
    call = _Call(scan, output, known_only)
    if not (yield from scan.literal("{")):
        return False
    while True:
        yield from scan.run(SPACE)
        if (yield from scan.literal("}")):
            return call.close()
        if not (yield from _member(scan, call)):
            return False
        yield from scan.run(SPACE)
        if (yield from scan.literal("}")):
            return call.close()
        if not (yield from scan.literal(",")):
            return False


def _member(scan: Scan, call: _Call) -> Steps[bool]:
    """One `"key": value`; what is none stays, unless it has been shown in part."""
    scan.mark()
    if (yield from _key_and_value(scan, call)):
        scan.forget()
        return True
    scan.rewind()
    return False


def _key_and_value(scan: Scan, call: _Call) -> Steps[bool]:
    key = yield from read_string(scan)
    if key is None or (call.known_only and key not in KNOWN_KEYS):
        return False
    yield from scan.run(SPACE)
    if not (yield from scan.literal(":")):
        return False
    yield from scan.run(SPACE)
    if key in NAME_KEYS and not call.named:
        return call.set_name((yield from read_string(scan)))
    if key in ARGUMENT_KEYS and not call.has_arguments:
        return (yield from _arguments(scan, call))
    if key == "function" and (yield from scan.peek()) == "{":
        return (yield from _nested(scan, call))
    return (yield from scan.json_value(_ignore))


def _nested(scan: Scan, call: _Call) -> Steps[bool]:
    """{"function": {"name": ..., "arguments": ...}}."""
    scan.skip(1)
    while True:
        yield from scan.run(SPACE)
        if (yield from scan.literal("}")):
            return True
        key = yield from scan.peek()
        if key != '"' or not (yield from _member(scan, call)):
            return False
        yield from scan.run(SPACE)
        yield from scan.literal(",")


def _arguments(scan: Scan, call: _Call) -> Steps[bool]:
    """The arguments: an object, or one written as a string, or null."""
    first = yield from scan.peek()
    if first == "{":
        return (yield from scan.json_value(call.add))
    if first == '"':
        text = yield from read_string(scan)
        if text is None or not text.strip().startswith("{"):
            return False
        call.add(text)
        return True
    if (yield from scan.literal("null")):
        call.add("{}")
        return True
    return False


def read_string(scan: Scan) -> Steps[str | None]:
    """A JSON string's value; None if there is none."""
    if (yield from scan.peek()) != '"':
        return None
    raw: list[str] = []
    if not (yield from scan.json_string(raw.append)):
        return None
    try:
        value: str = json.loads("".join(raw), strict=False)
    except ValueError:
        return None
    return value


def _ignore(text: str) -> None:
    """For values nobody asked for."""


class _Call:
    """A call on its way. It is shown once its name is known and its arguments have begun."""

    def __init__(self, scan: Scan, output: Output, known_only: bool) -> None:
        self._scan, self._output, self.known_only = scan, output, known_only
        self._waiting: list[str] = []
        self._name = ""
        self._shown = self.has_arguments = False

    @property
    def named(self) -> bool:
        """Whether its name is known."""
        return bool(self._name)

    def set_name(self, name: str | None) -> bool:
        """False if it cannot be one."""
        if not name or (self.known_only and name not in self._output.tools):
            return False
        self._name = name
        if self._waiting:
            self._show("".join(self._waiting))
        return True

    def add(self, text: str) -> None:
        """More of the arguments."""
        self.has_arguments = True
        if self.named:
            self._show(text)
        else:
            self._waiting.append(text)

    def close(self) -> bool:
        """At the object's end: no arguments means an empty object."""
        if self.named and not self.has_arguments:
            self._show("{}")
        return self.named

    def _show(self, arguments: str) -> None:
        if not self._shown:
            self._shown = True
            self._output.begin_call(self._name)
            self._scan.commit()
        self._output.arguments(arguments)

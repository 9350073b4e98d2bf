"""Calls written as tags, one a parameter, whose values are plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.parsing.lark import Lark
from octavo.parsing.scan import SPACE, Markers, Scan, Show, Steps
from octavo.parsing.stream import Output, attempt
from octavo.parsing.tools import Tool

_NAME = re.compile(r"[\w.\-]*")
_KEY = re.compile(r'[^<>"\n]*')


@dataclass(frozen=True)
class XmlCalls:
    """section: what stands round calls, "" where nothing does. call: before and after a name, then
    the call's end. key: before and after a parameter's name; value: before and after its value.
    Values lose the line breaks next to their tags if `lines`. typed: keys may be followed by
    `" string="true`, or "false". section_each: each call has a section of its own. between: what
    the model was taught to put between tags."""

    section: tuple[str, str]
    call: tuple[str, str, str]
    key: tuple[str, str]
    value: tuple[str, str]
    lines: bool = True
    typed: bool = False
    section_each: bool = False
    between: str = "\n"

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that begin calls."""
        return tuple(filter(None, (self.section[0], self.call[0])))

    def read(self, marker: str, scan: Scan, output: Output) -> Steps[bool]:
        """The calls after a marker."""
        begun = marker == self.call[0]
        before = output.num_calls
        while (yield from attempt(scan, output, self._call(scan, output, begun))):
            begun = False
        if output.num_calls > before and self.section[1]:
            yield from self._skip(scan, self.section[1])
        return output.num_calls > before

    def _call(self, scan: Scan, output: Output, begun: bool) -> Steps[bool]:
        yield from scan.run(SPACE)
        if not begun and self.call[0] and not (yield from scan.literal(self.call[0])):
            return False
        name = yield from scan.run(_NAME)
        if not name or not (yield from self._name_ends(scan)):
            return False
        arguments = _Arguments(name, scan, output)
        while (yield from self._parameter(scan, arguments)):
            pass
        closed = (yield from self._skip(scan, self.call[2])) if self.call[2] else True
        return arguments.close(closed)

    def _name_ends(self, scan: Scan) -> Steps[bool]:
        if self.call[1].strip():
            return (yield from scan.literal(self.call[1])) is not None
        blank = yield from scan.run(SPACE)
        ends = (self.key[0], self.call[2] or self.section[1])
        scan.mark()
        found = yield from scan.literal(*ends)
        scan.rewind()
        return bool(blank) or found is not None

    def _parameter(self, scan: Scan, arguments: _Arguments) -> Steps[bool]:
        """One parameter; what is none stays."""
        scan.mark()
        found = yield from self._key(scan)
        if found is None:
            scan.rewind()
            return False
        scan.forget()
        ends = Markers((self.value[1], *filter(None, (self.key[0], self.call[2]))))
        yield from arguments.read(*found, ends, self)
        return True

    def _key(self, scan: Scan) -> Steps[tuple[str, bool | None] | None]:
        """A parameter's name and whether it says that it is a string."""
        if not (yield from self._skip(scan, self.key[0])):
            return None
        name = yield from scan.run(_KEY)
        is_string: bool | None = None
        if self.typed and (yield from scan.literal('" string="')):
            is_string = (yield from scan.run(_NAME)) == "true"
        if not (yield from scan.literal(self.key[1])):
            return None
        if self.value[0]:
            yield from self._skip(scan, self.value[0])
        if self.lines:
            yield from scan.literal("\n", "\r\n")
        return name.strip(), is_string

    def _skip(self, scan: Scan, text: str) -> Steps[bool]:
        """Drop `text` and the blanks before it, if it comes."""
        scan.mark()
        yield from scan.run(SPACE)
        if (yield from scan.literal(text)):
            scan.forget()
            return True
        scan.rewind()
        return False

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it."""
        line = "\n" if self.lines else ""
        text = f"{self.opening}{name}{self.call[1]}{self.between}"
        for key, value in _members(arguments).items():
            string = isinstance(value, str)
            shown = value if string else json.dumps(value, ensure_ascii=False)
            typed = f'" string="{"true" if string else "false"}' if self.typed else ""
            gap = self.between if self.value[0] else ""
            text += f"{self.key[0]}{key}{typed}{self.key[1]}{gap}{self.value[0]}"
            text += f"{line}{shown}{line}{self.value[1]}{self.between}"
        return f"{text}{self.call[2]}{self.between if self.section[1] else ''}{self.section[1]}"

    def call_rule(self, tool: Tool, lark: Lark) -> str:
        """A call behind its opening, in Lark: parameters in the schema's order, those that are not
        required or not."""
        pieces = [lark.text(f"{tool.name}{self.call[1]}{self.between}")]
        for key, schema in tool.schema.get("properties", {}).items():
            value = self._value_rule(key, schema, lark)
            pieces.append(value if key in tool.schema.get("required", ()) else f"({value})?")
        line = self.between if self.section[1] else ""
        pieces.append(lark.text(self.call[2] + line))
        return " ".join(filter(None, pieces))

    def _value_rule(self, key: str, schema: Any, lark: Lark) -> str:
        string = kinds_of(schema) == {"string"}
        typed = f'" string="{"true" if string else "false"}' if self.typed else ""
        gap = "\n" if self.lines else ""
        between = self.between if self.value[0] else ""
        head = lark.text(f"{self.key[0]}{key}{typed}{self.key[1]}{between}{self.value[0]}{gap}")
        options = schema.get("enum") if isinstance(schema, dict) else None
        if string and not options:
            return " ".join(filter(None, (head, lark.upto(self.value[1]), lark.text(self.between))))
        if string:
            value = "(" + " | ".join(lark.text(str(option)) for option in options or ()) + ")"
        else:
            value = lark.json(schema)
        return f"{head} {value} {lark.text(gap + self.value[1] + self.between)}"

    @property
    def opening(self) -> str:
        """What a grammar begins calls with."""
        if not self.section[0]:
            return self.call[0]
        return self.section[0] + (self.between if self.call[0] else "") + self.call[0]

    def calls_rule(self, call: str, lark: Lark, many: bool) -> str:
        """One or more calls behind the opening. many: whether there may be several."""
        end = lark.text(self.section[1])
        if not many:
            return f"{call} {end}"
        if self.section_each:
            return f"{call} {end} ({lark.text(self.between + self.opening)} {call} {end})*"
        return f"{call} ({lark.text(self.call[0])} {call})* {end}"


def _members(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _Arguments:
    """Builds the JSON object of a call's arguments as its parameters come. What the end of the text
    cuts off stays open: a client must not take half a value for the whole."""

    def __init__(self, name: str, scan: Scan, output: Output) -> None:
        self._name, self._scan, self._output = name, scan, output
        tool = output.tools.get(name)
        properties = tool.schema.get("properties") if tool else None
        self._schemas: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        self._num, self._cut = 0, False

    def read(
        self, name: str, is_string: bool | None, ends: Markers, style: XmlCalls
    ) -> Steps[None]:
        """One value, up to its end tag; a next parameter or the call's end will do as well."""
        if not self._num:
            self._begin()
        head = f"{', ' if self._num else ''}{json.dumps(name, ensure_ascii=False)}: "
        self._num += 1
        kinds = kinds_of(self._schemas.get(name)) if is_string is None else frozenset[str]()
        if is_string or kinds == {"string"}:
            found = yield from self._string(head, ends, style)
        else:
            value: list[str] = []
            found = yield from self._scan.until(ends, value.append)
            self._output.arguments(head + as_json("".join(value), kinds))
        self._cut = found is None
        if found is not None and found != style.value[1]:
            self._scan.back(len(found))

    def _string(self, head: str, ends: Markers, style: XmlCalls) -> Steps[str | None]:
        self._output.arguments(head + '"')
        writer = _Escaped(self._output.arguments, style.lines)
        found = yield from self._scan.until(ends, writer.add)
        if found is not None:
            self._output.arguments('"')
        return found

    def close(self, closed: bool) -> bool:
        """At the call's end; a call without parameters is one only if it was closed."""
        if not self._num:
            if not closed:
                return False
            self._begin()
        if not self._cut:
            self._output.arguments("}")
        return True

    def _begin(self) -> None:
        self._output.begin_call(self._name)
        self._scan.commit()
        self._output.arguments("{")


class _Escaped:
    """Writes text as the inside of a JSON string; the line break at its end is dropped."""

    def __init__(self, write: Show, lines: bool) -> None:
        self._write, self._lines, self._held = write, lines, ""

    def add(self, text: str) -> None:
        """More of it."""
        text = self._held + text
        self._held = ""
        if self._lines and text.endswith("\n"):
            text, self._held = text[:-1], "\n"
        self._write(json.dumps(text, ensure_ascii=False)[1:-1])


def kinds_of(schema: Any) -> frozenset[str]:
    """The JSON types a value of this schema may have; empty for any."""
    if not isinstance(schema, dict):
        return frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(k for k in kind if isinstance(k, str))
    options = schema.get("enum")
    if isinstance(options, list) and all(isinstance(option, str) for option in options):
        return frozenset({"string"})
    unions = schema.get("anyOf") or schema.get("oneOf")
    found = [kinds_of(option) for option in unions] if isinstance(unions, list) else []
    return frozenset[str]().union(*found) if all(found) else frozenset()


def as_json(text: str, kinds: frozenset[str]) -> str:
    """The JSON value a parameter's text stands for. Where it may be a string it is one unless it
    can only be something else; text that is no JSON is a string whatever the schema says."""
    bare = text.strip()
    bare = _PYTHON.get(bare, bare)
    if kinds == {"string", "null"} and bare != "null":
        return json.dumps(text.removesuffix("\n"), ensure_ascii=False)
    try:
        json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text.removesuffix("\n"), ensure_ascii=False)
    return bare


_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _refuse(name: str) -> None:
    raise ValueError(name)

"""The format of a model's answers: what reads them, and what grammars make the model write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.parsing import harmony
from octavo.parsing.harmony_answer import HarmonyReader, OwnMessages
from octavo.parsing.harmony_library import HarmonyLibrary
from octavo.parsing.json_calls import JsonCalls
from octavo.parsing.lark import Lark
from octavo.parsing.parts import Answer, Parser, PlainParser
from octavo.parsing.reasoning import ReasoningFormat
from octavo.parsing.scan import SPACE, Markers, Scan, Show, Steps
from octavo.parsing.stream import Output, StreamParser, attempt, new_call_id
from octavo.parsing.tools import Tool


class ToolFormat(Protocol):
    """How calls are written."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that begin calls."""
        ...

    @property
    def opening(self) -> str:
        """What a grammar begins calls with; "" if that is no marker."""
        ...

    def read(self, marker: str, scan: Scan, output: Output) -> Steps[bool]:
        """The calls behind a marker. False if there are none: what was taken is put back."""
        ...

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it. arguments: a JSON object as text."""
        ...

    def call_rule(self, tool: Tool, lark: Lark) -> str:
        """A call behind the opening, in Lark."""
        ...

    def calls_rule(self, call: str, lark: Lark, many: bool) -> str:
        """One call, or several if `many`, behind the opening."""
        ...


TOOL_CALL = JsonCalls("<tool_call>", "</tool_call>", bare=True, pad="\n")
"""The most common way."""


@dataclass(frozen=True)
class AnswerFormat:
    """tools, reasoning: None where the model knows no such thing. harmony: gpt-oss, whose format
    is all of its own; library: what reads its messages, None for Octavo's own reader."""

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    harmony: bool = False
    library: HarmonyLibrary | None = None

    @property
    def can_reason(self) -> bool:
        """Whether answers may begin with thinking."""
        return self.harmony or self.reasoning is not None

    def markers(self, with_tools: bool = True) -> tuple[str, ...]:
        """Texts the parser must see, even those that are control tokens."""
        if self.harmony:
            return harmony.CONTROL
        calls = self.tools if with_tools else None
        tools = (*calls.markers, *_ends(calls)) if calls else ()
        return (*tools, *(self.reasoning.markers if self.reasoning else ()))

    def thought(self, prompt: str) -> tuple[str, str, bool] | None:
        """What begins and ends the thinking of an answer to `prompt`, and whether the prompt has
        begun it; None for models that do not think."""
        if self.harmony:
            opening = harmony.opening(prompt)
            return harmony.THOUGHT, harmony.END, opening.endswith(harmony.THOUGHT)
        if self.reasoning is None:
            return None
        return self.reasoning.begin, self.reasoning.end, bool(self.reasoning.opening(prompt))

    def parser(
        self,
        prompt: str = "",
        tools: Sequence[Tool] = (),
        new_id: Callable[[], str] = new_call_id,
        any_call: bool = False,
    ) -> Parser:
        """A parser for one answer to `prompt`. Without tools calls are text, unless any call
        counts; only its marker can tell one then."""
        output, with_tools = Output(tools, new_id), bool(tools) or any_call
        if self.harmony:
            messages = self.library.messages() if self.library else OwnMessages()
            reader = HarmonyReader(output, with_tools, messages)
            parser = StreamParser(lambda scan, _: reader.read(scan), output)
            parser.push(harmony.opening(prompt), [])
            return parser
        calls = self.tools if with_tools else None
        if calls is None and self.reasoning is None:
            return PlainParser()
        parser = StreamParser(lambda s, o: _read(s, o, calls, self.reasoning), output)
        if self.reasoning:
            parser.push(self.reasoning.opening(prompt), [])
        return parser

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it into a text, or in the most common way."""
        return (self.tools or TOOL_CALL).written(name, arguments)

    def parse(self, text: str, prompt: str = "", tools: Sequence[Tool] = ()) -> Answer:
        """A whole answer at once."""
        parser, answer = self.parser(prompt, tools), Answer()
        for part in [*parser.push(text, []), *parser.finish()]:
            answer.add(part)
        return answer


def _ends(tools: ToolFormat) -> tuple[str, ...]:
    """Control tokens within and behind calls that must be seen as well."""
    found = [getattr(tools, name, "") for name in ("end", "separator", "call_id")]
    section = getattr(tools, "section", None) or ("", "")
    return tuple(filter(None, (*found, *section)))


def _read(
    scan: Scan, output: Output, tools: ToolFormat | None, reasoning: ReasoningFormat | None
) -> Steps[None]:
    """A whole answer."""
    if reasoning:
        yield from reasoning.read(scan, output)
    dropped = reasoning.answer if reasoning else ()
    blank = ""
    bare = tools.read_bare(scan, output) if isinstance(tools, JsonCalls) and tools.bare else None
    if bare and (yield from attempt(scan, output, bare)):
        blank = yield from scan.run(SPACE)
    markers = Markers((*(tools.markers if tools else ()), *dropped))
    while True:
        show = _after(blank, output)
        found = yield from scan.until(markers, show, trim=bool(markers.texts))
        if found is None:
            return
        trimmed = scan.trimmed
        calls = tools.read(found, scan, output) if tools and found not in dropped else None
        if calls is None or (yield from attempt(scan, output, calls)):
            blank = yield from scan.run(SPACE)
            continue
        blank = ""
        show(trimmed + found)
        if scan.hit_end:  # what is left is no call: do not try every marker in it
            scan.rest(output.text)


def _after(blank: str, output: Output) -> Show:
    """Shows text; the blanks between calls and text only if there was text before."""
    waiting = [blank]

    def show(text: str) -> None:
        lead = waiting.pop() if waiting else ""
        output.text(lead + text if output.shown else text)

    return show

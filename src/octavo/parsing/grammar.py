"""What an answer must look like, thinking included, as grammars in llguidance's Lark dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from octavo.parsing import harmony
from octavo.parsing.answer import AnswerFormat, ToolFormat
from octavo.parsing.lark import Lark
from octavo.parsing.tools import Tool
from octavo.records import replace

BLANKS = "/[ \\n]{0,2}/"
"""Between the thinking and the rest."""


def forced_calls(
    format: AnswerFormat,
    tools: Sequence[Tool],
    prompt: str,
    special: Mapping[str, int],
    many: bool,
) -> str:
    """After thinking, if the model does: one call of these tools, or several if `many`."""
    lark = Lark(special)
    thinking = _thinking(format, prompt, lark)
    if format.harmony:
        rules = [lark.rule(f"call_{i}", harmony.call_rule(t, lark)) for i, t in enumerate(tools)]
        return lark.grammar(f"{thinking} ({' | '.join(rules)})")
    assert format.tools is not None
    opening = lark.text(format.tools.opening)
    return lark.grammar(f"{thinking} {opening} {_calls(format.tools, tools, lark, many)}")


def free_calls(
    format: AnswerFormat,
    tools: Sequence[Tool],
    prompt: str,
    special: Mapping[str, int],
    many: bool,
) -> str | None:
    """Any text, and calls of these tools whose arguments match: their schema where they are
    strict, an object else. None if the format has no marker that would tell a call from text."""
    if format.harmony or format.tools is None or not format.tools.opening:
        return None
    lark = Lark(special)
    loose = [
        tool if tool.strict else replace(tool, parameters={"type": "object"}) for tool in tools
    ]
    thinking = _thinking(format, prompt, lark)
    calls = lark.rule("calls", _calls(format.tools, loose, lark, many=False))
    before = lark.upto(format.tools.opening, *format.tools.markers)
    rest = lark.without(*format.tools.markers)
    return lark.grammar(f"{thinking} ({before} {calls}){'*' if many else '?'} {rest}")


def shaped_answer(
    format: AnswerFormat,
    body: str,
    tools: Sequence[Tool],
    prompt: str,
    special: Mapping[str, int],
    many: bool,
) -> str | None:
    """The grammar `body` (Lark, with a rule `start`) for the answer behind the thinking, or calls
    of these tools in its place, if there are any. None if the body can stand as it is."""
    lark = Lark(special)
    thinking = _thinking(format, prompt, lark)
    if not thinking and not tools:
        return None
    options = [f"{lark.text(harmony.FINAL)} answer_body" if format.harmony else "answer_body"]
    loose = [_loosened(tool) for tool in tools]
    if format.harmony:
        options += [harmony.call_rule(tool, lark) for tool in loose]
    elif loose and format.tools is not None:
        calls = _calls(format.tools, loose, lark, many)
        options.append(f"{lark.text(format.tools.opening)} {calls}")
    return lark.grammar(f"{thinking} ({' | '.join(options)})") + rename_start(body)


def _loosened(tool: Tool) -> Tool:
    """With the schema that is enforced although the model need not call it."""
    return tool if tool.strict else replace(tool, parameters={"type": "object"})


_TOKENS = re.compile(
    r"""(?P<kept>"(?:\\.|[^"\\])*"|/(?![/*])(?:\\.|[^/\\\n])+/|//[^\n]*|%llguidance\b[^\n]*\n?)
    |(?<![\w$@<|])start(?![\w|>])""",
    re.VERBOSE,
)


def rename_start(body: str) -> str:
    """The rule `start` becomes `answer_body`, wherever it is used; texts stay as they are, and
    llguidance's own directive, which may stand only at the top, is left out."""

    def replaced(found: re.Match[str]) -> str:
        kept = found["kept"]
        if kept is None:
            return "answer_body"
        return "" if kept.startswith("%llguidance") else kept

    return _TOKENS.sub(replaced, body)


def _calls(format: ToolFormat, tools: Sequence[Tool], lark: Lark, many: bool) -> str:
    rules = [lark.rule(f"call_{i}", format.call_rule(t, lark)) for i, t in enumerate(tools)]
    call = lark.rule("call", " | ".join(rules))
    return format.calls_rule(call, lark, many)


def _thinking(format: AnswerFormat, prompt: str, lark: Lark) -> str:
    """What may come before the rest; "" if nothing."""
    if format.harmony:
        return harmony.thought_rule(lark) if not harmony.opening(prompt) else ""
    reasoning = format.reasoning
    if reasoning is None or prompt.rstrip().endswith(reasoning.end):
        return ""
    rest = f"{lark.upto(reasoning.end)} {BLANKS}"
    if reasoning.opening(prompt):
        return rest
    return f"({lark.text(reasoning.begin)} {rest})?"

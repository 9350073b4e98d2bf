"""How the served model talks: how its answers are marked, and what its chat template wants."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from octavo.errors import TemplateError
from octavo.parsing import (
    NONE,
    AnswerFormat,
    Tool,
    answer_format,
    detect_reasoning,
    detect_tools,
)
from octavo.tokenizer import Tokenizer

AUTO = "auto"
FALLBACK = "hermes"
"""The tool format of models whose template names none that is known."""

_PROBE = Tool("octavo_probe", "", {"type": "object", "properties": {"probe_key": {}}})
_ID = "abcdefghi"


@dataclass(frozen=True)
class Wants:
    """What the template wants of a history. text_arguments: a call's arguments as JSON text, not
    as an object. single_calls: one call a message. short_ids: ids of nine letters and digits.
    thinking: thoughts under that name. plain: it knows nothing of tools; calls, results and
    descriptions must be text. system: it takes a system message."""

    text_arguments: bool = False
    single_calls: bool = False
    short_ids: bool = False
    thinking: bool = False
    plain: bool = False
    system: bool = True


@dataclass(frozen=True)
class Dialect:
    """format: of answers. special: ids of the control tokens it uses, by text. wants: of
    histories. source: the chat template used with tools, "" if there is none. calls_parsed: False
    if the operator switched that off."""

    format: AnswerFormat
    special: dict[str, int]
    wants: Wants
    source: str
    calls_parsed: bool = True

    @property
    def can_reason(self) -> bool:
        """Whether the model can be asked to think."""
        names = ("reasoning_effort", "enable_thinking", "thinking")
        return self.format.can_reason or any(map(self.knows, names))

    def knows(self, variable: str) -> bool:
        """Whether the template makes use of a variable."""
        return variable in self.source


def dialect_of(tokenizer: Tokenizer, tools: str = AUTO, reasoning: str = AUTO) -> Dialect:
    """Of a tokenizer and its templates. tools, reasoning: names of parsers, or "auto" for those the
    template asks for. Raises KeyError for an unknown name."""
    source = tokenizer.template_source(with_tools=True) or ""
    found = detect_tools(source) if tools == AUTO else tools
    if found == NONE and tools == AUTO:
        found = FALLBACK
    thinking = detect_reasoning(source) if reasoning == AUTO else reasoning
    format = answer_format(found, thinking)
    special = _control_tokens(tokenizer, format)
    return Dialect(format, special, _wants(tokenizer, source), source, found != NONE)


def _control_tokens(tokenizer: Tokenizer, format: AnswerFormat) -> dict[str, int]:
    """Those markers that are control tokens."""
    found = {}
    for marker in format.markers:
        ids = tokenizer.encode(marker, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            found[marker] = ids[0]
    return found


def _wants(tokenizer: Tokenizer, source: str) -> Wants:
    if not source:
        return Wants()
    plain = "tools" not in source and "functions" not in source
    return Wants(
        text_arguments=not plain and _wants_text(tokenizer),
        single_calls="tool_calls[0]" in source,
        short_ids="length != 9" in source,
        thinking=".thinking" in source and '"thinking" in message' in source,
        plain=plain,
        system=_renders(tokenizer, [{"role": "system", "content": _ID}, _USER]) != "",
    )


_USER = {"role": "user", "content": "?"}


def _wants_text(tokenizer: Tokenizer) -> bool:
    """Whether arguments must be text: what the template writes for an object is no JSON."""
    arguments: dict[str, Any] = {"probe_key": "x"}
    as_object = _renders(tokenizer, _called(arguments))
    if "probe_key" in as_object and "{'probe_key'" not in as_object:
        return False
    return "probe_key" in _renders(tokenizer, _called(json.dumps(arguments)))


def _called(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": _PROBE.name, "arguments": arguments}
    call = {"id": _ID, "type": "function", "function": function}
    return [
        _USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "?", "tool_call_id": _ID, "name": _PROBE.name},
    ]


def _renders(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> str:
    """What the template makes of messages; "" if it refuses."""
    try:
        return tokenizer.render_chat(messages, tools=[_PROBE.for_template()])
    except TemplateError:
        return ""

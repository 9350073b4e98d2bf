"""How the served model talks: how its answers are marked, and what its chat template wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import TemplateError
from octavo.parsing.answer import AnswerFormat
from octavo.parsing.formats import NONE, detect_reasoning, detect_tools, model_format
from octavo.parsing.tools import Tool
from octavo.tokenizer import Tokenizer

AUTO = "auto"
FALLBACK = "hermes"
"""The tool format of models whose template names none that is known."""

_ID = "abcdefghi"
_RESULT = "octavo_result"
_PROPERTY = {"type": "string", "description": "?"}
_PROBE = Tool("octavo_probe", "?", {"type": "object", "properties": {"key": _PROPERTY}})


@dataclass(frozen=True)
class Wants:
    """What the template wants of a history. described: it does not show the tools, so a system
    message must. written: it does not show calls, so an assistant's text must; answered: nor their
    results, which must be a user's text. text_arguments: a call's arguments as JSON text, not as an
    object. single_calls: one call a message. short_ids: ids of nine letters and digits. thinking:
    thoughts under that name. system: it takes a system message."""

    described: bool = False
    written: bool = False
    answered: bool = False
    text_arguments: bool = False
    single_calls: bool = False
    short_ids: bool = False
    thinking: bool = False
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

    def shown_ids(self, with_tools: bool) -> tuple[int, ...]:
        """Control tokens that the parser of an answer must see."""
        markers = self.format.markers(with_tools)
        return tuple(token for text, token in self.special.items() if text in markers)

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
    format = model_format(found, thinking, tokenizer)
    special = _control_tokens(tokenizer, format)
    return Dialect(format, special, _wants(tokenizer, source), source, found != NONE)


def _control_tokens(tokenizer: Tokenizer, format: AnswerFormat) -> dict[str, int]:
    """Those markers that are control tokens."""
    found = {}
    for marker in format.markers():
        ids = tokenizer.encode(marker, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            found[marker] = ids[0]
    return found


def _wants(tokenizer: Tokenizer, source: str) -> Wants:
    """Found out by trying."""
    if not source:
        return Wants()
    described = _PROBE.name not in _rendered(tokenizer, [_USER])
    as_object = _rendered(tokenizer, _called({"octavo_key": "x"}))
    as_text = _rendered(tokenizer, _called('{"octavo_key": "x"}'))
    object_shown = "octavo_key" in as_object and "{'octavo_key'" not in as_object
    text_shown = not object_shown and "octavo_key" in as_text
    written = not object_shown and not text_shown
    return Wants(
        described=described,
        written=written,
        answered=_RESULT not in as_object + as_text or (written and described),
        text_arguments=text_shown,
        single_calls="tool_calls[0]" in source,
        short_ids="length != 9" in source,
        thinking=".thinking" in source and '"thinking" in message' in source,
        system=_rendered(tokenizer, [{"role": "system", "content": "?"}, _USER]) != "",
    )


_USER = {"role": "user", "content": "?"}


def _called(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": _PROBE.name, "arguments": arguments}
    call = {"id": _ID, "type": "function", "function": function}
    return [
        _USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT, "tool_call_id": _ID, "name": _PROBE.name},
    ]


def _rendered(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> str:
    """What the template makes of messages; "" if it refuses."""
    try:
        return tokenizer.render_chat(messages, tools=[_PROBE.for_template()])
    except TemplateError:
        return ""

"""A conversation's messages as the model's chat template wants them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from octavo.parsing.answer import ToolFormat
from octavo.parsing.dialect import FALLBACK, Dialect, Wants
from octavo.parsing.formats import TOOL_FORMATS
from octavo.parsing.tools import Tool

Message = dict[str, Any]

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
TOOLS_TAIL = "\n</tools>\n\nFor each function call, write its name and arguments like this:\n"
"""What tells a model about its tools whose template does not: much as Qwen's does."""


def shaped(messages: Sequence[Message], tools: Sequence[Tool], dialect: Dialect) -> list[Message]:
    """The messages in the shape that the model's template wants; those given are left as they
    are."""
    wants = dialect.wants
    shown = [_with_arguments(message, wants) for message in messages]
    if wants.short_ids:
        shown = [_with_short_ids(message) for message in shown]
    if wants.thinking:
        shown = [_with_thinking(message) for message in shown]
    if wants.single_calls and not wants.written:
        shown = _split(shown)
    if wants.written:
        shown = [_with_written_calls(message, dialect.format.tools) for message in shown]
    if wants.answered:
        shown = _with_written_results(shown)
    if wants.described and tools:
        shown = _described(shown, tools, dialect.format.tools)
    return shown if wants.system else _without_system(shown)


def _with_arguments(message: Message, wants: Wants) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    as_text = wants.text_arguments or wants.written
    return {**message, "tool_calls": [_call(call, as_text) for call in calls]}


def _call(call: Message, as_text: bool) -> Message:
    """One call with its arguments as text or as an object. What is no object stays as it is: a
    model may have written it, and must be able to see so."""
    function = dict(call.get("function") or {})
    arguments = function.get("arguments") or "{}"
    if as_text and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not as_text and isinstance(arguments, str):
        arguments = _object(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _object(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _with_short_ids(message: Message) -> Message:
    shown = dict(message)
    if shown.get("tool_calls"):
        shown["tool_calls"] = [
            {**call, "id": short_id(call.get("id", ""))} for call in shown["tool_calls"]
        ]
    if "tool_call_id" in shown:
        shown["tool_call_id"] = short_id(shown["tool_call_id"])
    return shown


def short_id(call_id: str) -> str:
    """Nine letters and digits for any id, always the same for the same."""
    if len(call_id) == 9 and call_id.isalnum() and call_id.isascii():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _with_thinking(message: Message) -> Message:
    """Thoughts under the name `thinking`; with calls there is only one place for thoughts and
    text."""
    shown = dict(message)
    thoughts = shown.get("reasoning_content")
    if not thoughts:
        return shown
    if shown.get("tool_calls") and shown.get("content"):
        thoughts, shown["content"] = f"{thoughts}\n{shown['content']}", ""
    return {**shown, "thinking": thoughts}


def _split(messages: list[Message]) -> list[Message]:
    """One call a message, each with its result behind it."""
    shown: list[Message] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            shown.append(message)
            continue
        results = []
        while place < len(messages) and messages[place]["role"] == "tool":
            results.append(messages[place])
            place += 1
        shown += _pairs(message, calls, results)
    return shown


def _pairs(message: Message, calls: list[Message], results: list[Message]) -> list[Message]:
    shown, left = [], list(results)
    for number, call in enumerate(calls):
        rest = message if number == 0 else {"role": message["role"], "content": ""}
        shown.append({**rest, "tool_calls": [call]})
        found = [r for r in left if r.get("tool_call_id") == call.get("id")] or left[:1]
        shown += found
        left = [r for r in left if not any(r is one for one in found)]
    return shown + left


def _with_written_calls(message: Message, format: ToolFormat | None) -> Message:
    """Calls as text, in the model's own format."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [message["content"]] if message.get("content") else []
    texts += [_written(call["function"], format) for call in calls]
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join(texts)}


def _written(function: Message, format: ToolFormat | None) -> str:
    return (format or TOOL_FORMATS[FALLBACK]).written(function["name"], function["arguments"])


def _with_written_results(messages: list[Message]) -> list[Message]:
    """Results as a user's text; those in a row are one message."""
    shown: list[Message] = []
    in_row = False
    for message in messages:
        if message["role"] != "tool":
            in_row = False
            shown.append(message)
            continue
        result = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
        if in_row:
            result = f"{shown.pop()['content']}\n{result}"
        shown.append({"role": "user", "content": result})
        in_row = True
    return shown


def _described(
    messages: list[Message], tools: Sequence[Tool], format: ToolFormat | None
) -> list[Message]:
    lines = [json.dumps(tool.for_template(), ensure_ascii=False) for tool in tools]
    example = _written({"name": "function_name", "arguments": '{"parameter": "value"}'}, format)
    text = f"{TOOLS_HEAD}{chr(10).join(lines)}{TOOLS_TAIL}{example}"
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0].get('content') or ''}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _without_system(messages: list[Message]) -> list[Message]:
    """The system message as the beginning of the first user message."""
    if not messages or messages[0]["role"] != "system":
        return messages
    text, rest = messages[0].get("content") or "", messages[1:]
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": text}, *rest]
    first = {**rest[0], "content": f"{text}\n\n{rest[0].get('content') or ''}"}
    return [first, *rest[1:]]

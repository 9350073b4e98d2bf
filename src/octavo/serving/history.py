"""A conversation's messages as the model's chat template wants them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from octavo.parsing import Tool
from octavo.serving.dialect import Wants

Message = dict[str, Any]

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""What tells a model about its tools whose template does not: Qwen's words."""


def shaped(messages: Sequence[Message], tools: Sequence[Tool], wants: Wants) -> list[Message]:
    """The messages in the template's shape; those given are left as they are."""
    shown = [_with_arguments(message, wants) for message in messages]
    if wants.short_ids:
        shown = [_with_short_ids(message) for message in shown]
    if wants.thinking:
        shown = [_with_thinking(message) for message in shown]
    if wants.plain:
        shown = _as_text(shown, tools)
    elif wants.single_calls:
        shown = _split(shown)
    return shown if wants.system else _without_system(shown)


def _with_arguments(message: Message, wants: Wants) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    as_text = wants.text_arguments or wants.plain
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


def _as_text(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    """Tools, calls and results as text in system, assistant and user messages."""
    shown: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            result = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
            if shown and shown[-1].get("result"):
                shown[-1]["content"] += "\n" + result
            else:
                shown.append({"role": "user", "content": result, "result": True})
        elif message.get("tool_calls"):
            shown.append({"role": message["role"], "content": _calls_as_text(message)})
        else:
            shown.append(message)
    shown = [{k: v for k, v in message.items() if k != "result"} for message in shown]
    return _described(shown, tools) if tools else shown


def _calls_as_text(message: Message) -> str:
    parts = [message["content"]] if message.get("content") else []
    for call in message["tool_calls"]:
        function = call["function"]
        name = json.dumps(function.get("name", ""))
        inner = f'{{"name": {name}, "arguments": {function["arguments"]}}}'
        parts.append(f"<tool_call>\n{inner}\n</tool_call>")
    return "\n".join(parts)


def _described(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    lines = [json.dumps(tool.for_template(), ensure_ascii=False) for tool in tools]
    text = TOOLS_HEAD + "\n".join(lines) + TOOLS_TAIL
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

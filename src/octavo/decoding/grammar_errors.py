"""What llguidance says of a bad grammar, in the words of whoever sent it."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from octavo.decoding.grammar import Grammar
from octavo.decoding.grammar_lark import embedded_schemas
from octavo.decoding.grammar_limits import parse_json
from octavo.errors import InvalidParameterError

_MAX_MESSAGE = 400  # characters
_UNIMPLEMENTED = re.compile(r'Unimplemented keys: \["([^"]+)"')
_BAD_VALUES = (  # what llguidance says, the keyword, what that means
    (re.compile(r"Unknown format: (.*)"), "format", "unsupported format"),
    (re.compile(r"Invalid type: (.*)"), "type", "unknown type"),
    (re.compile(r"oneOf constraints are not supported"), "oneOf", 'unsupported keyword "oneOf"'),
    (re.compile(r"Resource '(.*?)' is not present"), "$ref", "unsupported external reference"),
    (re.compile(r"Pointer '(.*?)' does not exist"), "$ref", "unresolvable reference"),
)


def explain(grammar: Grammar, message: str) -> InvalidParameterError:
    """The error for a grammar that llguidance refused with `message`; for a schema it says which
    keyword is at fault, and where."""
    if grammar.kind == "json_schema":
        schemas = [parse_json(grammar)]
    else:
        schemas = [schema for _, _, schema in embedded_schemas(grammar.source)]
    text = _about_schemas(schemas, message) or _plain(message)
    return InvalidParameterError(grammar.param, _short(text))


def _plain(message: str) -> str:
    text = " ".join(message.split("\n")[0].split())
    return f"{text} {_reason(message)}" if "regex parse error" in message else text


def _about_schemas(schemas: list[Any], message: str) -> str | None:
    """None if the message is about none of them."""
    if (match := _UNIMPLEMENTED.search(message)) is not None:
        keyword = match[1]
        return f'unsupported keyword "{keyword}" at {_place(schemas, keyword)}'
    for pattern, keyword, meaning in _BAD_VALUES:
        if (match := pattern.search(message)) is not None:
            value = match[1].strip() if pattern.groups else None
            shown = meaning if value is None else f'{meaning} "{value}"'
            return f"{shown} at {_place(schemas, keyword, value)}"
    place = _place(schemas, "pattern")
    if "regex parse error" in message and place != "#":
        return f"unsupported pattern at {place}: {_reason(message)}"
    return None


def _reason(message: str) -> str:
    """What a regular expression's parser complains about."""
    return message.rpartition("\nerror: ")[2].split("\n")[0].strip()


def _place(schemas: list[Any], keyword: str, value: str | None = None) -> str:
    """Where the keyword (with that value) first stands, as a JSON pointer."""
    todo = deque([(schema, "#") for schema in schemas])
    while todo:
        node, path = todo.popleft()
        if isinstance(node, dict):
            if keyword in node and (value is None or value in str(node[keyword])):
                return f"{path}/{keyword}"
            todo += [(child, f"{path}/{_escaped(key)}") for key, child in node.items()]
        elif isinstance(node, list):
            todo += [(child, f"{path}/{place}") for place, child in enumerate(node)]
    return "#"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 3] + "..."

"""Any grammar as Lark, so that it can be a part of a larger one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from octavo.decoding.grammar import WHITESPACE, Grammar, json_rule, with_whitespace
from octavo.decoding.grammar_limits import parse_json
from octavo.errors import InvalidParameterError


def as_lark(grammar: Grammar) -> str:
    """The grammar in llguidance's Lark dialect, with a rule `start`.

    Raises InvalidParameterError naming `grammar.param` if it is malformed.
    """
    match grammar.kind:
        case "json_object":
            return f"start: {json_rule({'type': 'object'}, grammar.whitespace)}\n"
        case "json_schema":
            return f"start: {_json(grammar)}\n"
        case "regex":
            return f"start: /{_slashed(_ascii_classes(grammar.source))}/\n"
        case "choice":
            choices = [json.dumps(choice, ensure_ascii=False) for choice in parse_json(grammar)]
            return f"start: {' | '.join(choices)}\n"
        case "ebnf":
            return lark_of_ebnf(grammar)
    return grammar.source


def lark_of_ebnf(grammar: Grammar) -> str:
    """GBNF as Lark."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    if grammar.source.count("::=") > 512:
        raise InvalidParameterError(grammar.param, "has more than 512 rules")
    try:
        return gbnf_to_lark(_ESCAPED.sub(_unescaped, grammar.source))
    except Exception as error:  # the converter's own mistakes included
        raise InvalidParameterError(grammar.param, f"cannot be read as GBNF: {error}") from None


_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


def _unescaped(match: re.Match[str]) -> str:
    """A character by its number as itself; the converter writes such numbers wrongly. Those that
    mean something in a text or a class, and control characters, as GBNF escapes them."""
    if match[4] is not None:
        return match[0]
    char = chr(int(match[1] or match[2] or match[3], 16))
    if char in '"\\[]':
        return "\\" + char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return char


_JSON_RULE = re.compile(r"%json\s*(?={)")


def with_bounds(source: str) -> str:
    """A Lark grammar whose embedded schemas are rewritten as `normalized` does, with bounded blanks
    unless they say themselves what may stand between tokens."""
    pieces, at = [], 0
    for start, end, schema in embedded_schemas(source):
        bounded = {**with_whitespace(schema, WHITESPACE), **_own_options(schema)}
        pieces += [source[at:start], json.dumps(bounded, ensure_ascii=False)]
        at = end
    return "".join(pieces) + source[at:]


def embedded_schemas(source: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(start, end, schema) of every `%json {...}`; what is no JSON is passed over."""
    at = 0
    while (found := _JSON_RULE.search(source, at)) is not None:
        at = found.end()
        line = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
        if line.replace('\\"', "").count('"') % 2:
            continue  # in a text
        if (decoded := _schema_at(source, at)) is not None:
            yield at, decoded[1], decoded[0]
            at = decoded[1]


def all_schemas(source: str) -> Iterator[dict[str, Any]]:
    """Every schema that llguidance might read, also what looks like one within a text: where texts
    begin and end is not certain from here."""
    for found in _JSON_RULE.finditer(source):
        if (decoded := _schema_at(source, found.end())) is not None:
            yield decoded[0]


def _schema_at(source: str, at: int) -> tuple[dict[str, Any], int] | None:
    try:
        return json.JSONDecoder().raw_decode(source, at)
    except (ValueError, RecursionError):
        return None


def _own_options(schema: dict[str, Any]) -> dict[str, Any]:
    return {"x-guidance": schema["x-guidance"]} if "x-guidance" in schema else {}


def _json(grammar: Grammar) -> str:
    schema = parse_json(grammar)
    if not isinstance(schema, dict | bool):
        raise InvalidParameterError(grammar.param, "a JSON schema must be an object or a boolean")
    if schema is False:
        raise InvalidParameterError(grammar.param, "no text can match the schema `false`")
    return json_rule(schema, grammar.whitespace)


def _ascii_classes(pattern: str) -> str:
    r"""\d and \w mean ASCII, as in JSON Schema: a model is not asked for digits of all scripts."""
    from llguidance import regex_to_lark

    return regex_to_lark(pattern, "dw")


def _slashed(pattern: str) -> str:
    """A regular expression between slashes: its own slashes and line breaks escaped."""
    pieces, escaped = [], False
    for char in pattern:
        shown = {"/": "/" if escaped else "\\/", "\n": "n" if escaped else "\\n"}.get(char, char)
        pieces.append(shown)
        escaped = char == "\\" and not escaped
    return "".join(pieces)

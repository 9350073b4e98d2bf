"""Any grammar as Lark, so that it can be a part of a larger one."""

from __future__ import annotations

import json

from octavo.decoding.grammar import Grammar, json_rule
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
            return f"start: /{_slashed(grammar.source)}/\n"
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
        return gbnf_to_lark(grammar.source)
    except Exception as error:  # the converter's own mistakes included
        raise InvalidParameterError(grammar.param, f"cannot be read as GBNF: {error}") from None


def _json(grammar: Grammar) -> str:
    schema = parse_json(grammar)
    if not isinstance(schema, dict | bool):
        raise InvalidParameterError(grammar.param, "a JSON schema must be an object or a boolean")
    if schema is False:
        raise InvalidParameterError(grammar.param, "no text can match the schema `false`")
    return json_rule(schema, grammar.whitespace)


def _slashed(pattern: str) -> str:
    """A regular expression between slashes: its own slashes and line breaks escaped."""
    pieces, escaped = [], False
    for char in pattern:
        shown = {"/": "/" if escaped else "\\/", "\n": "n" if escaped else "\\n"}.get(char, char)
        pieces.append(shown)
        escaped = char == "\\" and not escaped
    return "".join(pieces)

"""What a grammar may cost: checked on its text, before any of it is compiled."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from octavo.decoding.grammar import Grammar
from octavo.errors import InvalidParameterError

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class GrammarLimits(Struct, frozen=True):
    """max_bytes: of the source in UTF-8. max_depth: of nested arrays and objects in a schema, of
    nested brackets in anything else. max_choices: entries of a choice. lexer_fuel, grammar_size,
    lexer_states: what llguidance may spend on one grammar; together they bound the time of
    compilation and the memory of a matcher."""

    max_bytes: int = 128 * 1024
    max_depth: int = 64
    max_choices: int = 10_000
    lexer_fuel: int = 200_000
    grammar_size: int = 250_000
    lexer_states: int = 50_000

    def check(self, grammar: Grammar) -> None:
        """Raise InvalidParameterError if the text is too large, too deep or no JSON."""
        size = len(grammar.source.encode("utf-8", "surrogatepass"))
        if size > self.max_bytes:
            raise InvalidParameterError(
                grammar.param, f"has {size:,} bytes, at most {self.max_bytes:,} are allowed"
            )
        if grammar.kind == "json_schema":
            self._check_depth(grammar, _depth(parse_json(grammar)))
        elif grammar.kind == "choice":
            self._check_choices(grammar)
        else:
            self._check_depth(grammar, _bracket_depth(grammar.source))

    def _check_depth(self, grammar: Grammar, depth: int) -> None:
        if depth > self.max_depth:
            raise InvalidParameterError(
                grammar.param, f"is nested {depth} deep, at most {self.max_depth} are allowed"
            )

    def _check_choices(self, grammar: Grammar) -> None:
        choices = parse_json(grammar)
        if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
            raise InvalidParameterError(grammar.param, "expected a list of strings")
        if not 1 <= len(choices) <= self.max_choices:
            raise InvalidParameterError(
                grammar.param, f"has {len(choices)} choices, expected 1 to {self.max_choices:,}"
            )


def parse_json(grammar: Grammar) -> Any:
    """The JSON value in a grammar's source. Raises InvalidParameterError if there is none."""
    try:
        return json.loads(grammar.source)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(grammar.param, f"is not valid JSON: {error}") from None


def _depth(value: Any) -> int:
    """Levels of nested arrays and objects, counted without recursion."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _bracket_depth(text: str) -> int:
    """Upper bound on the nesting of brackets; those in quotes count too."""
    depth = deepest = 0
    for char in text:
        if char in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif char in _CLOSING:
            depth = max(0, depth - 1)
    return deepest

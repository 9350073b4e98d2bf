"""Every kind of grammar as Lark accepts what it accepted before."""

from __future__ import annotations

import pytest

from octavo.decoding import Grammar, as_lark
from octavo.errors import InvalidParameterError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CASES = [
    (Grammar.json_object(), ['{"a": [1]}', "{}"], ["[]", "", "x"]),
    (Grammar.from_schema(SCHEMA), ['{"a": 1}', '{"a":1,"b":{}}'], ["{}", '{"a": "1"}']),
    (Grammar.from_schema(True), ["1", "[]"], ["x"]),
    (Grammar.from_regex(r"a/b\/c[/\n]?"), ["a/b/c", "a/b/c/", "a/b/c\n"], ["ab", "a/b/cc"]),
    (Grammar.from_regex("a\nb"), ["a\nb"], ["ab", "anb"]),
    (Grammar.from_regex("yes|no"), ["yes", "no"], ["yesno", ""]),
    (Grammar.from_choices(["a", 'b"\\']), ["a", 'b"\\'], ["b", "ab"]),
    (Grammar.from_lark('start: "(" start ")" | "x"'), ["x", "((x))"], ["(x", ""]),
    (Grammar.from_ebnf('root ::= "a" root | "b"'), ["b", "aab"], ["a", ""]),
]


@pytest.mark.parametrize(("grammar", "good", "bad"), CASES, ids=lambda case: str(case)[:40])
def test_as_lark(grammar: Grammar, good: list[str], bad: list[str]) -> None:
    lark = Grammar.from_lark(as_lark(grammar))
    for text, expected in [*((t, True) for t in good), *((t, False) for t in bad)]:
        assert grammar.accepts(text) == expected, text
        assert lark.accepts(text) == expected, text


@pytest.mark.parametrize("source", ["{", "5", '"x"', "false"])
def test_a_bad_schema_names_its_field(source: str) -> None:
    with pytest.raises(InvalidParameterError, match="response_format"):
        as_lark(Grammar("json_schema", source, param="response_format"))

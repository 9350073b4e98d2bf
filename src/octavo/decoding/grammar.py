"""What the text of an answer must look like, as plain data that travels with SamplingParams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from octavo.decoding.grammar_schema import normalized
from octavo.errors import InvalidParameterError

GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "lark", "ebnf"]

WHITESPACE = r" |\r?\n[ \t]{0,64}"
"""What may stand between two JSON tokens, at most once: a space, or a line break and an
indentation. Bounded, so that a model cannot loop in blanks."""


@dataclass(frozen=True)
class Grammar:
    """The whole answer, from its first to its last character, matches this.

    source by kind: "json_schema": the schema as JSON text. "json_object": "" (any object).
    "regex": a regular expression, anchored at both ends. "choice": a JSON list of strings.
    "lark": a grammar in llguidance's Lark dialect, which may embed `%json {schema}` and special
    tokens (`<|name|>`). "ebnf": GBNF as llama.cpp and xgrammar write it.

    whitespace: for the JSON kinds, a regular expression of what may stand between two tokens,
    matched at most once; "" for none. param: the request field it came from; errors name it.
    """

    kind: GrammarKind
    source: str = ""
    whitespace: str = WHITESPACE
    param: str = field(default="grammar", compare=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(GrammarKind):
            raise InvalidParameterError(self.param, f"got the kind {self.kind!r}")

    @classmethod
    def from_schema(cls, schema: Any, *, param: str = "grammar") -> Grammar:
        """JSON that a schema (draft 2020-12) describes. schema: a dict or bool, or JSON text."""
        if isinstance(schema, str):
            return cls("json_schema", schema, param=param)
        try:
            text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParameterError(param, f"cannot be written as JSON: {error}") from None
        return cls("json_schema", text, param=param)

    @classmethod
    def json_object(cls, *, param: str = "grammar") -> Grammar:
        """Any JSON object."""
        return cls("json_object", param=param)

    @classmethod
    def from_regex(cls, pattern: str, *, param: str = "grammar") -> Grammar:
        """Text that a regular expression matches from end to end."""
        return cls("regex", pattern, param=param)

    @classmethod
    def from_choices(cls, choices: Sequence[str], *, param: str = "grammar") -> Grammar:
        """One of these texts."""
        return cls("choice", json.dumps(list(choices), ensure_ascii=False), param=param)

    @classmethod
    def from_lark(cls, source: str, *, param: str = "grammar") -> Grammar:
        """Text that a Lark grammar derives from `start`."""
        return cls("lark", source, param=param)

    @classmethod
    def from_ebnf(cls, source: str, *, param: str = "grammar") -> Grammar:
        """Text that a GBNF grammar derives from `root`."""
        return cls("ebnf", source, param=param)

    def accepts(self, text: bytes | str) -> bool:
        """Whether `text` is a whole answer; judged byte by byte, without a model.

        Raises InvalidParameterError if the grammar cannot be used. Slow; meant for tests.
        """
        from octavo.decoding.grammar_compiler import GrammarCompiler

        data = text.encode() if isinstance(text, str) else text
        matcher = GrammarCompiler.for_bytes().compile(self).new_matcher()
        return all(matcher.try_advance(byte) for byte in data) and matcher.can_end


def json_rule(schema: Any, whitespace: str = WHITESPACE) -> str:
    """`%json {...}` for a Lark grammar: JSON that `schema` (a dict or bool) describes, with
    bounded whitespace."""
    return "%json " + json.dumps(with_whitespace(schema, whitespace), ensure_ascii=False)


def with_whitespace(schema: Any, whitespace: str) -> dict[str, Any]:
    """A JSON schema as llguidance takes it, which says what may stand between two tokens."""
    if schema is False:
        raise ValueError("the schema `false` matches nothing")
    plain = {} if schema is True else normalized(schema)
    options = {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    return {**plain, "x-guidance": options}

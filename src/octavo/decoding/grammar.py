"""What the text of an answer must look like, as plain data that travels with SamplingParams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "lark", "ebnf"]


@dataclass(frozen=True)
class Grammar:
    """The whole answer, from its first to its last character, matches this.

    source by kind: "json_schema": the schema as JSON text. "json_object": "" (any object).
    "regex": a regular expression, anchored at both ends. "choice": a JSON list of strings.
    "lark": a grammar in llguidance's Lark dialect, which may embed `%json {schema}` and special
    tokens (`<|name|>`). "ebnf": GBNF as llama.cpp and xgrammar write it.
    """

    kind: GrammarKind
    source: str = ""

"""Grammars in llguidance's Lark dialect, written piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How JSON is spaced: as Python writes it, which models were taught; no blanks to get lost in."""


class Lark:
    """Collects rules. special: ids of the control tokens that texts may hold, by text; text never
    matches those, so they are written as tokens."""

    def __init__(self, special: Mapping[str, int] | None = None) -> None:
        self._special = dict(special or {})
        pattern = "|".join(map(re.escape, sorted(self._special, key=len, reverse=True)))
        self._pattern = re.compile(f"({pattern})" if pattern else r"(?!)")
        self._rules: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Exactly this text, control tokens and all."""
        pieces = self._pattern.split(text) if self._special else [text]
        return " ".join(self._piece(piece) for piece in pieces if piece)

    def _piece(self, text: str) -> str:
        if text in self._special:
            return f"<[{self._special[text]}]>"
        return json.dumps(text)

    def json(self, schema: Mapping[str, Any] | bool) -> str:
        """A value of this schema."""
        if isinstance(schema, bool):
            schema = {} if schema else {"not": {}}
        return "%json " + json.dumps({**schema, "x-guidance": COMPACT})

    def upto(self, end: str, *banned: str) -> str:
        """Any text without the banned ones, and the first `end` after it."""
        if any(token in end for token in self._special):
            return f"{self.without(*banned)} {self.text(end)}"
        name = f"upto_{len(self._rules)}"
        self._rules[f"{name}[suffix={json.dumps(end)}]"] = self._without(banned)
        return name

    def without(self, *markers: str) -> str:
        """Any text that holds none of the markers. Control tokens are in no text anyway."""
        return self.rule(f"TEXT_{len(self._rules)}", self._without(markers))

    def _without(self, markers: Sequence[str]) -> str:
        spelled = [m for m in markers if m not in self._special]
        banned = "".join(f" & ~/(?s:.*){_escape(marker)}(?s:.*)/" for marker in spelled)
        return f"/(?s:.*)/{banned}"

    def rule(self, name: str, body: str) -> str:
        """Define a rule; its name."""
        self._rules[name] = body
        return name

    def grammar(self, start: str) -> str:
        """The whole grammar."""
        rules = {"start": start, **self._rules}
        return "".join(f"{name}: {body}\n" for name, body in rules.items())


def _escape(text: str) -> str:
    """As part of a /regex/."""
    return re.sub(r"[\\.\[\]{}()*+?^$|/&~]", lambda found: "\\" + found.group(), text)

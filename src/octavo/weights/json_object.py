"""JSON from untrusted files beside weights and within them."""

from __future__ import annotations

import json
from typing import Any

from octavo.errors import FormatError

MAX_JSON_MARKS = 10_000_000  # brackets, braces and commas; each may take some 60 bytes of memory


def parse_json_object(text: bytes, what: str) -> dict[str, Any]:
    """Parse untrusted JSON that must be an object without duplicate keys. Raises FormatError."""
    marks = sum(text.count(mark) for mark in b"[{,")
    if marks > MAX_JSON_MARKS:
        raise FormatError(f"{what}: has {marks} lists, objects and commas, over {MAX_JSON_MARKS}")
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{what}: expected a JSON object, got {type(value).__name__}")
    return value


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key!r} appears twice")
            seen.add(key)
    return result

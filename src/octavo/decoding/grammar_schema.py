"""JSON schemas as llguidance takes them: what it does not know but need not enforce is rewritten.

Every rewriting keeps the meaning of draft 2020-12: a keyword that asks for nothing goes, and one
that says the same as another becomes that one.
"""

from __future__ import annotations

from decimal import Decimal
from math import lcm
from typing import Any

FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "time",
        "uri",
        "uuid",
    }
)
"""Values of `format` that are enforced. By the standard any `format` is a remark unless a program
decides otherwise; the other ones stay remarks."""

_SCHEMAS = (
    *("items", "additionalItems", "additionalProperties", "unevaluatedItems"),
    *("unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_COUNTS = (
    *("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)
_IN_PLACE = frozenset(  # what may evaluate properties and items elsewhere than at hand
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "contains", "not"}
)


def normalized(schema: Any) -> Any:
    """A rewritten copy of a schema that is nested no deeper than Python recurses."""
    if not isinstance(schema, dict):
        return schema
    copy = dict(schema)
    for key in _SCHEMAS:
        if isinstance(copy.get(key), dict):
            copy[key] = normalized(copy[key])
    for key in _LISTS:
        if isinstance(copy.get(key), list):
            copy[key] = [normalized(item) for item in copy[key]]
    for key in _MAPS:
        if isinstance(copy.get(key), dict):
            copy[key] = {name: normalized(item) for name, item in copy[key].items()}
    _drop_idle(copy)
    _raise_lower_bounds(copy)
    _fold_unevaluated(copy, "unevaluatedProperties", "additionalProperties")
    _fold_unevaluated(copy, "unevaluatedItems", "items")
    return copy


def _raise_lower_bounds(schema: dict[str, Any]) -> None:
    """llguidance fails on the common lower bound of 64-bit integers. So it becomes its neighbour in
    float64; the numbers in between are lost."""
    types = schema.get("type")
    if types != "integer" and not (isinstance(types, list) and "integer" in types):
        return
    if "number" in types:
        return
    for key in ("minimum", "exclusiveMinimum"):
        if isinstance(value := schema.get(key), int | float) and value < _LOWEST:
            del schema[key]
            schema["minimum"] = _LOWEST


_LOWEST = 1024 - 2**63
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef"})
MAX_REMAINDERS = 100_000
"""Each is a state of llguidance's, about 500 bytes and 10 us, which none of its limits counts."""
MAX_EXACT = 2**53
"""llguidance keeps numbers as float64; a larger constant would become its neighbour."""


def unsafe_number(schema: Any) -> str | None:
    """What of a schema llguidance cannot compute with, None where there is nothing: a number in a
    `const` or `enum` beyond those that are kept exactly, an upper bound below all of those,
    multiples that take a state for each remainder. Some of these end the process there.
    """
    todo = [(schema, False, False)]  # whether it is a constant, or a map from names to schemas
    multiples: list[Decimal] = []
    combined = False
    while todo:
        node, constant, named = todo.pop()
        if isinstance(node, dict):
            inside = not (constant or named)
            if inside:
                if bound := _low_bound(node):
                    return bound
                multiples += _multiple(node)
                combined = combined or not _COMBINING.isdisjoint(node)
            todo += [
                (item, constant or (inside and key in ("const", "enum")), inside and key in _MAPS)
                for key, item in node.items()
            ]
        elif isinstance(node, list):
            todo += [(item, constant, False) for item in node]
        elif constant and isinstance(node, int | float) and abs(node) > MAX_EXACT:
            return f"a constant beyond 2^53 is not supported: {str(node)[:30]}"
    return _many_remainders(multiples, combined)


def _low_bound(schema: dict[str, Any]) -> str | None:
    for key in ("maximum", "exclusiveMaximum"):
        if isinstance(value := schema.get(key), int | float) and value < -MAX_EXACT:
            return f"`{key}` below -2^53 is not supported: {str(value)[:30]}"
    return None


def _multiple(schema: dict[str, Any]) -> list[Decimal]:
    value = schema.get("multipleOf")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        return []  # llguidance says what is wrong with it
    return [Decimal(repr(value)).normalize()]


def _many_remainders(multiples: list[Decimal], combined: bool) -> str | None:
    """Where schemas are combined, a number may have to be a multiple of all at once. Less than
    a hundred times a power of ten is quick as well: the last digits tell that power."""
    for some in [multiples] if combined else [[one] for one in multiples]:
        places = max((-int(one.as_tuple().exponent) for one in some), default=0)
        count = lcm(*(int(one.scaleb(places)) for one in some)) if places < 30 else 0
        if count > MAX_REMAINDERS and len(str(count).rstrip("0")) > 2:
            shown = ", ".join(sorted({str(one) for one in some})[:4])
            return f"`multipleOf` of {shown} has {count} remainders, at most {MAX_REMAINDERS}"
    return None


def _drop_idle(schema: dict[str, Any]) -> None:
    for key in _COUNTS:
        value = schema.get(key)
        if isinstance(value, float) and value.is_integer():
            schema[key] = int(value)
    if isinstance(schema.get("format"), str) and schema["format"] not in FORMATS:
        del schema["format"]
    if schema.get("uniqueItems") is False:
        del schema["uniqueItems"]
    if schema.get("propertyNames") in (True, {}):
        del schema["propertyNames"]
    if "if" not in schema:
        schema.pop("then", None)
        schema.pop("else", None)
    if "contains" not in schema:
        schema.pop("minContains", None)
        schema.pop("maxContains", None)


def _fold_unevaluated(schema: dict[str, Any], key: str, plain: str) -> None:
    """unevaluated... is additional... where nothing but the keywords at hand evaluates."""
    if key not in schema:
        return
    if schema[key] is True or schema[key] == {} or plain in schema:
        del schema[key]
    elif _IN_PLACE.isdisjoint(schema):
        schema[plain] = schema.pop(key)

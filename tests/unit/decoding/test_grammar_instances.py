"""Whatever a schema describes is accepted: random schemas, each with instances of it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from octavo.decoding import Grammar

Described = tuple[Any, SearchStrategy[Any]]
"""A schema, and what it describes."""

TEXT = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


SPELT_OUT = TEXT.map(lambda text: text.replace("\x7f", "~"))
"""What a schema names itself has one spelling in a grammar; DEL has another one there than in free
strings, and `_written` knows only the latter."""


def _json(numbers: SearchStrategy[Any], text: SearchStrategy[str]) -> SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


JSON = _json(NUMBERS, TEXT)
CONSTANTS = _json(st.integers(-(2**53), 2**53), SPELT_OUT)
"""Of the ways to write a float a grammar takes one: 1.0 is the constant 1."""


@st.composite
def leaves(draw: st.DrawFn) -> Described:
    low, size = draw(st.integers(-99, 99)), draw(st.integers(0, 9))
    step = draw(st.integers(1, 13))
    values = draw(st.lists(CONSTANTS, min_size=1, max_size=4))
    kinds: list[Described] = [
        ({"type": "string"}, TEXT),
        (
            {"type": "string", "minLength": size, "maxLength": size + 3},
            st.text(st.characters(codec="utf-8"), min_size=size, max_size=size + 3),
        ),
        (
            {"type": "string", "pattern": f"^[a-c]{{{size}}}-"},
            st.from_regex(f"[a-c]{{{size}}}-[ -~]*", fullmatch=True),
        ),
        ({"type": "string", "format": "date"}, st.dates().map(str)),
        ({"type": "string", "format": "uuid"}, st.uuids().map(str)),
        ({"type": "integer"}, st.integers()),
        (
            {"type": "integer", "minimum": low, "exclusiveMaximum": low + 50},
            st.integers(low, low + 49),
        ),
        ({"type": "integer", "multipleOf": step}, st.integers().map(lambda n: n * step)),
        ({"type": "number"}, NUMBERS),
        ({"type": ["boolean", "null"]}, st.booleans() | st.none()),
        ({"enum": values}, st.sampled_from(values)),
        ({"const": values[0]}, st.just(values[0])),
        ({}, JSON),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def arrays(draw: st.DrawFn, inner: SearchStrategy[Described]) -> Described:
    schema, instances = draw(inner)
    least = draw(st.integers(0, 3))
    most = least + draw(st.integers(0, 3))
    described = {"type": "array", "items": schema, "minItems": least, "maxItems": most}
    return described, st.lists(instances, min_size=least, max_size=most)


@st.composite
def objects(draw: st.DrawFn, inner: SearchStrategy[Described]) -> Described:
    """Properties come in the order of the schema, which a grammar keeps."""
    names = draw(st.lists(SPELT_OUT, max_size=4, unique=True))
    fields = {name: draw(inner) for name in names}
    required = [name for name in names if draw(st.booleans())]
    schema = {
        "type": "object",
        "properties": {name: field[0] for name, field in fields.items()},
        "required": required,
        "additionalProperties": False,
    }
    chosen = st.fixed_dictionaries(
        {name: fields[name][1] for name in required},
        optional={name: fields[name][1] for name in names if name not in required},
    )
    return schema, chosen.map(lambda found: {name: found[name] for name in names if name in found})


@st.composite
def unions(draw: st.DrawFn, inner: SearchStrategy[Described]) -> Described:
    options = draw(st.lists(inner, min_size=1, max_size=3))
    return {"anyOf": [schema for schema, _ in options]}, st.one_of([i for _, i in options])


SCHEMAS = st.recursive(
    leaves(), lambda inner: arrays(inner) | objects(inner) | unions(inner), max_leaves=6
)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.data(), st.sampled_from([None, 2]))
def test_instances_of_a_schema_are_accepted(
    described: Described, data: st.DataObject, indent: int | None
) -> None:
    schema, instances = described
    text = _written(data.draw(instances), indent)
    assert Grammar.from_schema(schema).accepts(text)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(TEXT, JSON, max_size=4), st.sampled_from([None, 0, 4]))
def test_any_object_is_a_json_object(value: dict[str, Any], indent: int | None) -> None:
    assert Grammar.json_object().accepts(_written(value, indent))


@settings(max_examples=60, deadline=None)
@given(JSON, st.integers(0, 200), st.sampled_from(list('{}[]",:0e-tn \n\\')))
def test_what_is_no_json_is_not_accepted(value: Any, place: int, char: str) -> None:
    """A character put anywhere into a text: accepted only if the whole is JSON still."""
    text = _written([value], None)
    place %= len(text) + 1
    changed = text[:place] + char + text[place:]
    if Grammar.from_schema({"type": "array"}).accepts(changed):
        json.loads(changed)


def _written(value: Any, indent: int | None) -> str:
    """As models write it; DEL is a control character for the grammar."""
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\x7f", "\\u007f")

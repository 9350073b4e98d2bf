"""Jinja2's filters and tests, with their costs charged to the rendering's budget."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from jinja2 import filters

from octavo.tokenizer import bounds

Function = Callable[..., Any]

WEIGHED_FILTERS = (
    *("sort", "unique", "min", "max", "dictsort", "groupby"),
    *("batch", "slice", "wordwrap", "truncate", "xmlattr", "urlize", "pprint"),
)
WEIGHED_TESTS = (
    *("==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge"),
    *("<", "lt", "lessthan", "<=", "le", "in"),
)


def bounded_filters(known: Mapping[str, Any]) -> dict[str, Function]:
    """Filters to put in place of Jinja2's own (`known`), and those the environment itself uses."""
    return _OWN_FILTERS | {name: _weigh_first(known[name]) for name in WEIGHED_FILTERS}


def bounded_tests(known: Mapping[str, Any]) -> dict[str, Function]:
    """Tests to put in place of Jinja2's own (`known`)."""
    return {name: _weigh_all(known[name]) for name in WEIGHED_TESTS}


def _weigh(value: Any) -> Any:
    bounds.weigh(value)
    return value


def _weigh_first(function: Function) -> Function:
    """The filter, made to weigh its input and arguments first."""
    takes_context = hasattr(function, "jinja_pass_arg")

    @functools.wraps(function)
    def weighed(*args: Any, **kwargs: Any) -> Any:
        at = 1 if takes_context else 0
        value = args[at] if bounds.is_sized(args[at]) else list(bounds.counted(args[at], 0))
        options = [*args[at + 1 :], *kwargs.values()]
        bounds.check_counts(options)
        bounds.weigh([value, *options])
        if isinstance(value, str):
            bounds.charge(len(value) * max(map(bounds.size_of, options), default=0))
        return function(*args[:at], value, *args[at + 1 :], **kwargs)

    return weighed


def _weigh_all(function: Function) -> Function:
    """The test, made to weigh what it compares first."""

    @functools.wraps(function)
    def weighed(*args: Any) -> Any:
        bounds.weigh(args)
        return function(*args)

    return weighed


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escaping, unlike Jinja's own filter."""
    bounds.weigh(value)
    if indent is not None and (not isinstance(indent, int) or indent > 64):
        raise bounds.refuse("such an indent")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _center(value: str, width: int = 80) -> str:
    bounds.check_counts([width])
    bounds.charge(width)
    return filters.do_center(value, width)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    bounds.check_counts([width])
    size = len(width) if isinstance(width, str) else width
    bounds.charge((text.count("\n") + 1) * size + len(text))
    return filters.do_indent(text, width, first, blank)


@jinja2.pass_eval_context
def _join(context: Any, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
    items = list(bounds.counted(value, len(d)))
    bounds.weigh(items)
    return str(filters.do_join(context, items, d, attribute))


@jinja2.pass_eval_context
def _replace(context: Any, text: str, old: str, new: str, count: int | None = None) -> str:
    text = str(text)
    bounds.check_method(text, "replace", (str(old), str(new)))
    return str(filters.do_replace(context, text, old, new, count))


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    bounds.check_binary("%", value, kwargs or args)
    return filters.do_format(value, *args, **kwargs)


def _string(value: Any) -> str:
    bounds.weigh(value)
    return str(value)


@jinja2.pass_environment
def _sum(environment: Any, values: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    items = list(bounds.counted(values, 0))
    bounds.weigh(items)
    total: Any = filters.sync_do_sum(environment, items, attribute, start)
    return total


def _concat(values: list[Any]) -> str:
    bounds.weigh(values)
    return "".join(map(str, values))


_OWN_FILTERS: dict[str, Function] = {
    "tojson": _tojson,
    "center": _center,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "format": _format,
    "string": _string,
    "sum": _sum,
    "octavo_counted": bounds.counted,
    "octavo_concat": _concat,
    "octavo_weighed": _weigh,
}

"""What a chat template may cost. Templates come out of model files, so they are not trusted.

One rendering has a budget. Every loop turn and call takes some of it, and every operation that can
make a value much larger than its operands is charged before it runs. One unit is about a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from jinja2.utils import Namespace

from octavo.errors import TemplateError

BUDGET = 1 << 28
TURN_COST = 64  # a loop turn
ITEM_COST = 512  # an element looked at
CALL_COST = 1024  # a call takes some 10 us
MAX_COUNT = 1_000_000  # widths, repetitions and other numbers given to methods and filters
MAX_INT_BITS = 4096  # results of * and **

_left: ContextVar[int] = ContextVar("template_budget_left")
_COLLECTIONS: tuple[type[Iterable[Any]], ...] = (
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_LONG_NUMBER = re.compile(r"\d{5}")
_NESTED_FIELD = re.compile(r"\{[^{}]*\{")


def start() -> None:
    """Begin a rendering: the budget is full."""
    _left.set(BUDGET)


def charge(units: int) -> None:
    """Take units from the budget. Raises TemplateError once it is used up."""
    left = _left.get() - units
    _left.set(left)
    if left < 0:
        raise TemplateError(
            "chat template: used up its budget of loop turns and text; it is broken or hostile"
        )


def refuse(what: str) -> TemplateError:
    """The error for an operation no chat template needs."""
    return TemplateError(f"chat template: {what} is not allowed")


def counted(items: Iterable[Any], weight: int) -> Iterator[Any]:
    """The items, each charged a turn and the weight of the loop's body."""
    for item in items:
        charge(TURN_COST + weight)
        yield item


def weigh(value: Any) -> None:
    """Charge what writing, comparing or hashing `value` costs, nested values as often as they
    occur: lists of lists can be exponentially larger than the template that makes them."""
    if isinstance(value, str | bytes):
        charge(len(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            charge(ITEM_COST)
            weigh(key)
            weigh(item)
    elif isinstance(value, _COLLECTIONS):
        for item in value:
            charge(ITEM_COST)
            weigh(item)
    elif isinstance(value, Namespace):
        weigh(value._Namespace__attrs)


def is_sized(value: Any) -> bool:
    """Whether `weigh` can look into it without using it up."""
    return not isinstance(value, Iterator)


def size_of(value: Any) -> int:
    """Elements of a sequence; 0 for anything else."""
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def check_binary(operator: str, left: Any, right: Any) -> None:
    """Charge `left operator right` for *, **, + and %, before it is worked out."""
    if operator == "+":
        charge(size_of(left) + size_of(right))
    elif operator == "%" and isinstance(left, str | bytes):
        check_format(left if isinstance(left, str) else left.decode("latin-1"), "*")
        weigh(right)
    elif operator == "*":
        _check_product(left, right)
    elif operator == "**" and _bits(left) * abs(right) > MAX_INT_BITS:
        raise refuse("a power this large")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 1


def _check_product(left: Any, right: Any) -> None:
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and _bits(left) + _bits(right) > MAX_INT_BITS
    ):
        raise refuse("a number this large")
    for sequence, count in ((left, right), (right, left)):
        if isinstance(count, int):
            charge(size_of(sequence) * max(count, 0))


def check_counts(values: Iterable[Any]) -> None:
    """Refuse numbers that could only be meant as an attack."""
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_COUNT:
            raise refuse(f"a count of {value:.3g}")


def check_format(layout: str, star: str = "") -> None:
    """Refuse widths and precisions that are large or taken from an argument."""
    if _LONG_NUMBER.search(layout) or _NESTED_FIELD.search(layout) or (star and star in layout):
        raise refuse("a field of such a width")


def check_method(receiver: str | bytes, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Charge a call of a string's method; gives the arguments to call it with."""
    charge(len(receiver))
    if name == "join" and args:
        args = (list(counted(args[0], len(receiver))), *args[1:])
        weigh(args[0])
    elif name == "replace" and len(args) >= 2 and isinstance(args[1], str | bytes):
        charge((receiver.count(args[0]) + 1) * len(args[1]))
    elif name in ("format", "format_map"):
        check_format(str(receiver))
        weigh(args)
    elif name == "expandtabs":
        charge(len(receiver) * max([8, *(arg for arg in args if isinstance(arg, int))]))
    elif name == "translate":
        raise refuse("translate")
    return args

"""The budget of thinking: when which token is forced, for any markers and any output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding import SamplingParams, ThinkingBudget
from octavo.decoding.thinking import Thinking
from octavo.errors import InvalidParameterError

BEGIN, END = 100, 101


def forced_along(budget: ThinkingBudget, output: list[int]) -> list[int | None]:
    """What is forced before each token of an output, and behind it."""
    thinking = Thinking(budget)
    found = [thinking.forced]
    for token in output:
        thinking.push(token)
        found.append(thinking.forced)
    return found


def test_the_end_is_forced_once_the_budget_is_used_up() -> None:
    budget = ThinkingBudget(2, (BEGIN,), (END,))
    assert forced_along(budget, [1, BEGIN, 1, 2, END, 3]) == [None] * 4 + [END, None, None]


def test_zero_ends_thinking_at_once() -> None:
    assert forced_along(ThinkingBudget(0, (BEGIN,), (END,), True), [END, 1]) == [END, None, None]


def test_thoughts_in_several_pieces_share_the_budget() -> None:
    output = [BEGIN, 1, END, 5, BEGIN, 2, END]
    found = forced_along(ThinkingBudget(2, (BEGIN,), (END,)), output)
    assert found == [None] * 6 + [END, None]


def test_an_end_that_has_begun_is_only_completed() -> None:
    budget = ThinkingBudget(2, (7, 8), (8, 8, 9))
    assert forced_along(budget, [7, 8, 1, 8, 8, 9]) == [None] * 7
    assert forced_along(budget, [7, 8, 1, 2, 8, 8, 9])[4:] == [8, 8, 9, None]
    assert forced_along(budget, [7, 8, 1, 8, 2, 8, 8, 9])[4:] == [None, 8, 8, 9, None]


@given(
    st.integers(0, 6),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.booleans(),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_thinking_never_takes_more(
    limit: int, begin: list[int], end: list[int], is_open: bool, wanted: list[int]
) -> None:
    """A model that writes whatever it likes, but for what is forced."""
    thinking = Thinking(ThinkingBudget(limit, tuple(begin), tuple(end), is_open))
    inside, run = is_open, 0
    for token in wanted:
        forced = thinking.forced
        before = thinking._is_open
        thinking.push(token if forced is None else forced)
        run = run + 1 if before else 0
        inside = thinking._is_open
        assert not inside or run <= limit + len(end)


@pytest.mark.parametrize(
    "change", [{"num_tokens": -1}, {"num_tokens": True}, {"end": ()}, {"begin": (-1,)}]
)
def test_bad_budgets_are_named(change: dict[str, object]) -> None:
    good = {"num_tokens": 1, "begin": (BEGIN,), "end": (END,)}
    with pytest.raises(InvalidParameterError, match="thinking_budget"):
        ThinkingBudget(**{**good, **change})  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="thinking_budget"):
        SamplingParams(thinking_budget=3)  # type: ignore[arg-type]
    params = SamplingParams(thinking_budget=ThinkingBudget(1, (BEGIN,), (END,)))
    with pytest.raises(InvalidParameterError, match="thinking_budget"):
        params.check_vocab(101)

"""How a text is cut into windows."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidParameterError
from octavo.eval import Window, default_text, windows_of


def test_windows_lie_side_by_side_and_the_rest_is_dropped():
    got = windows_of(range(11), 4, skip=1)
    assert got == [Window([0, 1, 2, 3], 1), Window([4, 5, 6, 7], 1)]
    assert [window.targets for window in got] == [[2, 3], [6, 7]]


def test_half_of_a_window_is_context_only():
    (window,) = windows_of(range(512), 512)
    assert (window.first, len(window.targets)) == (256, 255)


def test_every_window_begins_with_the_begin_token():
    assert [w.ids for w in windows_of(range(6), 3, bos=99)] == [[99, 1, 2], [99, 4, 5]]


def test_a_short_text_is_one_window():
    assert windows_of(range(10), 512, max_tokens=6) == [Window([0, 1, 2, 3, 4, 5], 3)]


@pytest.mark.parametrize(
    ("count", "context", "skip", "param"),
    [(8, 1, None, "context"), (8, 4, 3, "skip"), (8, 4, -1, "skip"), (1, 4, 0, "skip")],
)
def test_nothing_to_score_is_refused(count: int, context: int, skip: int | None, param: str):
    with pytest.raises(InvalidParameterError) as caught:
        windows_of(range(count), context, skip=skip)
    assert caught.value.param == param


def test_the_built_in_text_is_long_and_mixed():
    text = default_text()
    assert len(text) > 20_000
    assert all(part in text for part in ("bindery", "def ", "#pragma once", "算子"))

"""Blocks of an answer: however its text is cut into deltas, they come out the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.types import Delta
from octavo.parsing import Part, ReasoningPart, TextPart, ToolCallPart
from octavo.serving.blocks import Block, Blocks
from octavo.serving.reply import ReplyDelta

PARTS = st.one_of(
    st.builds(ReasoningPart, st.text(max_size=3)),
    st.builds(TextPart, st.text(max_size=3)),
    st.builds(ToolCallPart, st.integers(0, 2), st.text(max_size=3)),
)


def delta(parts: list[Part], last: bool = False) -> ReplyDelta:
    return ReplyDelta(0, parts, Delta("x", 0, "", []), "stop" if last else None)


@given(st.lists(st.lists(PARTS, max_size=4), max_size=8))
def test_cuts_make_no_difference(pieces: list[list[Part]]) -> None:
    whole, cut = Blocks(), Blocks()
    whole.push(delta([part for piece in pieces for part in piece], last=True))
    events = [event for piece in pieces for event in cut.push(delta(piece))]
    events += cut.push(delta([], last=True))
    assert cut.all == whole.all
    assert [block.index for block in cut.all] == list(range(len(cut.all)))
    for block in cut.all:
        mine = [event for event in events if event.block is block]
        assert [mine[0].action, mine[-1].action] == ["open", "close"]
        assert "".join(event.text for event in mine) == block.text
        assert all(event.action == "more" for event in mine[1:-1])


def test_arguments_that_were_cut_off_are_no_error() -> None:
    assert Block(0, "tool_call", '{"a": 1}').arguments() == {"a": 1}
    for text in ("", '{"a": ', "[1]", "null"):
        assert Block(0, "tool_call", text).arguments() == {}

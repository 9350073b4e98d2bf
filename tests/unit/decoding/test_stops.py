"""Stop strings against a search of the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding import StopMatcher

ALPHABET = st.sampled_from("ab\n")
TEXTS = st.lists(st.text(ALPHABET, max_size=4), max_size=12)
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=4)


def search(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition: look at every prefix, shortest first, for a stop string at its end."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def stream(chunks: list[str], stops: list[str], include: bool) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include)
    shown, matched = "", None
    for chunk in chunks:
        safe, matched = matcher.push(chunk)
        shown += safe
    return shown + matcher.finish(), matched


@given(TEXTS, STOPS, st.booleans())
def test_any_chunking_finds_what_the_whole_text_has(chunks, stops, include):
    """The stop found and the text shown do not depend on the chunks."""
    expected = search("".join(chunks), stops, include)
    assert expected == stream(chunks, stops, include)


@given(TEXTS, STOPS)
def test_exactly_what_may_become_a_stop_string_is_held_back(chunks, stops):
    """Nothing shown has to be taken back, and nothing is held without need."""
    matcher, seen, shown = StopMatcher(stops), "", ""
    for chunk in chunks:
        safe, matched = matcher.push(chunk)
        seen, shown = seen + chunk, shown + safe
        if matched is not None:
            return
        held = seen[len(shown) :]
        candidates = [stop[:size] for stop in stops for size in range(1, len(stop))]
        longest = max((len(c) for c in candidates if seen.endswith(c)), default=0)
        assert longest == len(held)


def test_the_stop_string_that_ends_first_wins():
    """ "bc" is complete before "abcd", though it starts later."""
    assert StopMatcher(["abcd", "bc"]).push("abcd") == ("a", "bc")


def test_of_two_stop_strings_with_one_end_the_longer_wins():
    """The text is cut as early as possible."""
    assert StopMatcher(["b", "ab"]).push("xab") == ("x", "ab")


def test_text_after_a_match_is_dropped():
    """A matcher that has matched stays so."""
    matcher = StopMatcher(["."], include=True)
    assert matcher.push("One. Two") == ("One.", ".")
    assert matcher.push(" three.") == ("", ".")
    assert matcher.finish() == ""

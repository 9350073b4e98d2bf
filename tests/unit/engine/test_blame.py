"""Who an engine crashes of: found among many, the others unharmed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.blame import Blame


def test_one_crash_proves_nothing() -> None:
    blame = Blame(limit=3)
    assert blame.crashed(["a", "b"]) is None
    assert blame.on_trial is None
    assert blame.may_run("a")


def test_from_the_second_crash_on_suspects_are_tried_apart() -> None:
    blame = Blame(limit=3)
    blame.crashed(["a", "b", "c"])
    blame.crashed(["a", "b", "c"])
    assert blame.on_trial == "a"
    assert not blame.may_run("queued")
    assert not blame.saw("b", 1)
    assert blame.saw("a", 1)
    assert blame.on_trial == "b"
    assert blame.crashed(["b"]) == "b"
    assert blame.on_trial == "c"
    assert blame.saw("c", 1)
    assert blame.may_run("queued")


def test_a_lone_request_is_given_up_at_the_limit() -> None:
    blame = Blame(limit=3)
    assert [blame.crashed(["a"]) for _ in range(3)] == [None, None, "a"]
    assert blame.on_trial is None


def test_a_limit_of_one_convicts_only_who_was_alone() -> None:
    blame = Blame(limit=1)
    assert blame.crashed(["a", "b"]) is None
    assert blame.crashed(["a"]) == "a"


def test_a_crash_while_idle_accuses_nobody() -> None:
    blame = Blame(limit=2)
    for _ in range(5):
        assert blame.crashed([]) is None
    assert blame.on_trial is None


def test_who_leaves_is_tried_no_more() -> None:
    blame = Blame(limit=3)
    for _ in range(2):
        blame.crashed(["a", "b", "c"])
    blame.forget("b")
    blame.forget("a")
    assert blame.on_trial == "c"
    blame.forget("c")
    assert blame.on_trial is None


def test_the_next_trials_are_longer() -> None:
    """A request that crashes only after some tokens passes the first trial, not the second."""
    blame = Blame(limit=4)
    for _ in range(2):
        blame.crashed(["a", "b"])
    assert blame.saw("a", 1)
    assert blame.saw("b", 1)
    blame.crashed(["a", "b"])
    assert not blame.saw("a", 15)
    assert blame.crashed(["a"]) == "a"


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 12),
    guilty=st.sets(st.integers(0, 11), max_size=3),
    fuse=st.integers(1, 40),
    limit=st.integers(2, 4),
)
def test_the_guilty_are_convicted_and_nobody_else(
    size: int, guilty: set[int], fuse: int, limit: int
) -> None:
    """Requests need 50 tokens; a guilty one kills the engine at its `fuse`-th, whoever runs too."""
    blame, tokens = Blame(limit), dict.fromkeys(map(str, range(size)), 0)
    bad = {str(i) for i in guilty if i < size}
    convicted = set()
    for _ in range(5000):
        running = [name for name in tokens if blame.may_run(name)]
        if not running:
            break
        if any(name in bad and tokens[name] + 1 >= fuse for name in running):
            if (found := blame.crashed(running)) is not None:
                convicted.add(found)
                del tokens[found]
            continue
        for name in running:
            tokens[name] += 1
            if tokens[name] == 50:
                blame.forget(name)
                del tokens[name]
            else:
                blame.saw(name, 1)
    assert not tokens
    assert convicted == bad

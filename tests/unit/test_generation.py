"""Batches of an answer: what came before a failure is shown, with the counts of what was shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.decoding import SamplingParams
from octavo.engine.options import EngineOptions
from octavo.engine.types import Delta, Request
from octavo.serving.errors import ApiError
from octavo.serving.generation import Generation
from octavo.serving.metrics import Metrics


def delta(text: str, reason: Any = None) -> Delta:
    return Delta("r", 0, text, [1], None, reason)


ENDED: list[tuple[str, int]] = []


def generation(batches: list[list[Delta]], n: int = 1) -> Generation:
    """Of a client that has these to say."""

    async def say(request: Request, taker: object) -> AsyncGenerator[list[Delta]]:
        for batch in batches:
            yield batch

    options = EngineOptions(model="none")

    def end(name: str, index: int) -> None:
        ENDED.append((name, index))

    ENDED.clear()
    client = SimpleNamespace(batches=say, options=options, end_sample=end)
    serving: Any = SimpleNamespace(client=client, num_interactive=0)
    serving.metrics = Metrics(serving)
    return Generation(serving, [Request("r", [1, 2], SamplingParams(n=n))], "prompt")


async def shown(made: Generation) -> list[tuple[str, int]]:
    """The text of each batch and the tokens counted by then."""
    return [
        ("".join(one.text for _, one in batch), made.num_output_tokens)
        async for batch in made.batches()
    ]


async def test_what_comes_together_is_yielded_together() -> None:
    made = generation([[delta("a"), delta("b")], [delta("c", "stop")]])
    assert await shown(made) == [("ab", 2), ("c", 3)]


async def test_a_choice_that_is_ended_is_stopped_alone() -> None:
    batches = [
        [Delta("r", index, text, [1], None, reason) for index in (0, 1)]
        for text, reason in (("a", None), ("b", None), ("c", "stop"))
    ]
    made = generation(batches, n=2)
    shown = []
    async for batch in made.batches():
        shown += [(choice, one.text) for choice, one in batch]
        if len(shown) == 2:
            made.end_choice(1)
    assert shown == [(0, "a"), (1, "a"), (0, "b"), (0, "c")]
    assert made.num_output_tokens == 4
    assert ENDED == [("r", 1)]
    made.end_choice(0)  # nothing is left: the whole is stopped, as its reader goes
    assert ENDED == [("r", 1)]


async def test_one_by_one_for_exact_counts() -> None:
    made = generation([[delta("a"), delta("b")], [delta("c", "stop")]])
    made.one_by_one = True
    assert await shown(made) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_what_came_before_a_failure_is_shown(one_by_one: bool) -> None:
    made = generation([[delta("a"), delta("b"), delta("", "abort")]])
    made.one_by_one = one_by_one
    found: list[str] = []

    async def read() -> None:
        async for batch in made.batches():
            found.extend(one.text for _, one in batch)

    with pytest.raises(ApiError, match="aborted"):
        await read()
    assert (found, made.num_output_tokens) == (["a", "b"], 2)

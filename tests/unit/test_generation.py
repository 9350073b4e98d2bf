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


def generation(batches: list[list[Delta]]) -> Generation:
    """Of a client that has these to say."""

    async def say(request: Request) -> AsyncGenerator[list[Delta]]:
        for batch in batches:
            yield batch

    options = EngineOptions(model="none")
    client = SimpleNamespace(batches=say, options=options)
    serving: Any = SimpleNamespace(client=client, num_interactive=0)
    serving.metrics = Metrics(serving)
    return Generation(serving, [Request("r", [1, 2], SamplingParams())], "prompt")


async def shown(made: Generation) -> list[tuple[str, int]]:
    """The text of each batch and the tokens counted by then."""
    return [
        ("".join(one.text for _, one in batch), made.num_output_tokens)
        async for batch in made.batches()
    ]


async def test_what_comes_together_is_yielded_together() -> None:
    made = generation([[delta("a"), delta("b")], [delta("c", "stop")]])
    assert await shown(made) == [("ab", 2), ("c", 3)]


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

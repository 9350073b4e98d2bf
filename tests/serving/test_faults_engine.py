"""Engines killed, stopped and poisoned under 20 streams: every stream gets exactly its text."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.backends import BACKENDS
from octavo.backends.null import NullBackend
from octavo.engine.engine import Engine
from octavo.engine.options import EngineOptions
from octavo.engine.supervision import Supervision
from octavo.engine.worker import Progress
from octavo.serving import ServerOptions
from tests.serving import tiny_model as scripted
from tests.serving.live_server import MODEL, LiveServer, live_server
from tests.serving.tiny_model import VARIED

NUM_STREAMS = 20
POISON = ord("!")


class Poisoned(NullBackend):
    """Steps take five milliseconds; the process dies in the step that follows a "!"."""

    def __init__(self) -> None:
        super().__init__(_deadly, step_s=0.005)


def _deadly(token: int, position: int) -> int:
    if token == POISON:
        os._exit(3)
    return scripted.script(token, position)


def make_poisoned(options: EngineOptions, progress: Progress, located: object) -> Engine:
    """A factory for the backend above."""
    BACKENDS["poisoned"] = (__name__, "Poisoned")
    return scripted.make_engine(options, progress, located)


@dataclass
class Answer:
    """What a stream showed."""

    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    num_logprobs: int = 0
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        self.error = chunk.get("error", self.error)
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices", ()):
            index = choice["index"]
            self.texts[index] = self.texts.get(index, "") + choice["text"]
            self.num_logprobs += len((choice["logprobs"] or {}).get("tokens", ()))
            if choice["finish_reason"]:
                self.reasons[index] = choice["finish_reason"]


def body(place: int) -> dict[str, Any]:
    """Different in all that a continuation must get right."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0, "ignore_eos": True},
        {"temperature": 1.5 * VARIED, "seed": 5, "top_k": 40, "logprobs": 1},
        {"temperature": VARIED, "seed": 6, "n": 2, "frequency_penalty": 2.0},
        {"temperature": 0, "ignore_eos": True, "stop": ["defghij"], "max_tokens": 150},
        {"temperature": VARIED, "seed": 8, "repetition_penalty": 1.4, "min_tokens": 50},
    ]
    return {
        "model": MODEL,
        "prompt": f"Request number {place} says hello",
        "max_tokens": 120,
        "stream": True,
        "stream_options": {"include_usage": True},
        **kinds[place % len(kinds)],
    }


async def stream(http: httpx.AsyncClient, wanted: dict[str, Any], begun: Callable[[], None]) -> Any:
    answer = Answer()
    async with http.stream("POST", "/v1/completions", json=wanted) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                answer.add(json.loads(line[6:]))
                begun()
    return answer


async def all_streams(
    server: LiveServer, disturb: Callable[[], Coroutine[Any, Any, None]]
) -> list[Answer]:
    """All answers; `disturb` runs once the streams have begun."""
    begun: set[int] = set()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:

        async def one(place: int) -> Any:
            return await stream(http, body(place), lambda: begun.add(place))

        tasks = [asyncio.create_task(one(place)) for place in range(NUM_STREAMS)]
        while len(begun) < NUM_STREAMS:
            await asyncio.sleep(0.005)
        await disturb()
        return list(await asyncio.gather(*tasks))


async def nothing() -> None:
    """No fault."""


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
async def test_20_streams_survive_their_engine(tiny_model: Path, fault: signal.Signals) -> None:
    options = ServerOptions(
        served_model_names=(MODEL,),
        supervision=Supervision(hang_timeout_s=60 if fault == signal.SIGKILL else 2),
        stall_timeout_s=0.2,
    )
    with live_server(tiny_model, backend="slow", server=options) as server:
        undisturbed = await all_streams(server, nothing)
        seen: list[int] = []

        async def break_engine() -> None:
            os.kill(server.client.pid, fault)
            async with httpx.AsyncClient(base_url=server.url) as http:
                end = time.monotonic() + 30
                while 503 not in seen:
                    assert time.monotonic() < end
                    seen.append((await http.get("/health/progress")).status_code)
                    await asyncio.sleep(0.02)

        disturbed = await all_streams(server, break_engine)
        assert server.client.num_restarts >= 1
        for before, after in zip(undisturbed, disturbed, strict=True):
            assert after.error is None
            assert after.texts == before.texts
            assert after.reasons == before.reasons
            assert after.num_logprobs == before.num_logprobs
            assert after.usage is not None
            assert before.usage is not None
            assert after.usage["completion_tokens"] == before.usage["completion_tokens"]
        assert server.wait_idle()["octavo:kv_blocks_used"] == 0
        assert server.http.get("/health/progress").json()["status"] == "idle"


@pytest.mark.model
async def test_a_real_model_goes_on_where_it_was() -> None:
    """SmolLM2 on the CPU backend: what decoding had written, prefill computes again to the bit."""
    factory = "octavo.engine.worker:load_engine"
    prompts = ["Once upon a time", "The three laws of robotics are", "def fibonacci(n):"]
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.0, "seed": 3, "logprobs": 2},
    ]
    with live_server("smollm2", backend="cpu", factory=factory, max_model_len=512) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:

            async def one(place: int, begun: Callable[[], None]) -> Answer:
                wanted = {"model": MODEL, "max_tokens": 60, "stream": True, **kinds[place % 2]}
                wanted |= {"prompt": prompts[place % 3], "ignore_eos": True}
                answer: Answer = await stream(http, wanted, begun)
                return answer

            whole = await asyncio.gather(*(one(place, lambda: None) for place in range(6)))
            shown = [0]

            def count() -> None:
                shown[0] += 1

            tasks = [asyncio.create_task(one(place, count)) for place in range(6)]
            while shown[0] < 100:
                await asyncio.sleep(0.002)
            os.kill(server.client.pid, signal.SIGKILL)
            continued = await asyncio.gather(*tasks)
        assert server.client.num_restarts == 1
        assert [a.texts for a in continued] == [a.texts for a in whole]
        assert [a.num_logprobs for a in continued] == [a.num_logprobs for a in whole]


async def test_only_the_request_that_kills_engines_fails(tiny_model: Path) -> None:
    """Its neighbours, running and queued, get their text; the service goes on."""
    factory = f"{__name__}:make_poisoned"
    with live_server(tiny_model, backend="poisoned", factory=factory, max_num_seqs=4) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:

            async def complete(prompt: str) -> httpx.Response:
                wanted = {"model": MODEL, "prompt": prompt, "max_tokens": 40, "temperature": 0}
                return await http.post("/v1/completions", json=wanted)

            prompts = ["a", "b!", "c", "d", "e", "f"]
            answers = await asyncio.gather(*map(complete, prompts))
        for prompt, answer in zip(prompts, answers, strict=True):
            if "!" in prompt:
                assert answer.status_code == 500
                assert answer.json()["error"]["code"] == "request_crashed"
            else:
                assert answer.status_code == 200
                following = "".join(chr(ord(prompt) + 1 + i) for i in range(40))
                assert answer.json()["choices"][0]["text"] == following.partition("\x7f")[0]
        assert server.client.num_restarts == 3

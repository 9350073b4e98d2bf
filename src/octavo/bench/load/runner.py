"""Sends a load and collects the records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice

from octavo.bench.load.arrivals import ClosedLoop, OpenLoop, Trace
from octavo.bench.load.client import Target, ask, find_model
from octavo.bench.load.prompts import Prompt, PromptMix
from octavo.bench.load.results import LoadResult, RequestRecord, Slo
from octavo.bench.load.wire import Wire
from octavo.errors import OctavoError
from octavo.records import replace

Load = ClosedLoop | OpenLoop | Trace


def bench_server(
    target: Target,
    load: Load,
    mix: PromptMix,
    *,
    num_requests: int | None = 100,
    duration_s: float | None = None,
    warmup: int = 2,
    slo: Slo | None = None,
    cost_per_hour: float | None = None,
    on_record: Callable[[RequestRecord], None] | None = None,
) -> LoadResult:
    """Run a load to its end: num_requests sent, duration_s over, or the trace played; what is
    under way then is waited for.

    warmup: requests sent one by one before the clock starts. on_record: called after each answer.
    Raises OctavoError if the server lists no model or no warm-up request is answered.
    """
    if find_spec("httptools") is None:
        message = "`octavo bench serve` needs httptools; pip install 'octavo[bench]'"
        raise OctavoError(f"bench: {message}")

    async def run() -> tuple[list[RequestRecord], float]:
        wire, found = Wire(), target
        if not found.model:
            found = replace(target, model=await find_model(wire, target))
        sender = _Sender(wire, found, on_record)
        await sender.warm_up(mix, warmup)
        return await sender.run(load, mix, num_requests, duration_s)

    records, wall_s = asyncio.run(run())
    if not records:
        raise OctavoError("bench: no request was sent; give a longer --duration or --requests")
    prompts = "as the trace says" if isinstance(load, Trace) else _describe(mix)
    return LoadResult.of(
        records, wall_s, load=str(load), prompts=prompts, slo=slo, cost_per_hour=cost_per_hour
    )


class _Sender:
    def __init__(
        self,
        wire: Wire,
        target: Target,
        on_record: Callable[[RequestRecord], None] | None,
    ) -> None:
        self._wire, self._target, self._on_record = wire, target, on_record
        self._records: list[RequestRecord] = []
        self._start = 0.0

    async def warm_up(self, mix: PromptMix, count: int) -> None:
        """Other prompts than the measured ones."""
        prompts = replace(mix, seed=mix.seed + 1_000_003).prompts()
        last = None
        for prompt in islice(prompts, count):
            last = await ask(self._wire, self._target, prompt, time.perf_counter, 0.0)
        if last is not None and not last.good:
            raise OctavoError(
                f"bench: {self._target.path} does not answer: {last.error or 'empty answer'}"
            )

    async def run(
        self, load: Load, mix: PromptMix, num_requests: int | None, duration_s: float | None
    ) -> tuple[list[RequestRecord], float]:
        """All records and the seconds from the first request to the last answer."""
        prompts = iter(()) if isinstance(load, Trace) else _made(mix, num_requests)
        self._start = time.perf_counter()
        match load:
            case ClosedLoop(concurrency):
                clients = (self._client(prompts, duration_s) for _ in range(concurrency))
                await asyncio.gather(*clients)
            case OpenLoop():
                await self._open(zip(load.moments(), prompts, strict=False), duration_s)
            case Trace(entries):
                moments = (entry.at_s for entry in entries)
                pairs = zip(moments, mix.follow(iter(entries)), strict=False)
                await self._open(islice(pairs, num_requests), duration_s)
        return self._records, self._now()

    async def _client(self, prompts: Iterator[Prompt], duration_s: float | None) -> None:
        for prompt in prompts:
            if duration_s is not None and self._now() >= duration_s:
                return
            await self._send(prompt, self._now())

    async def _open(self, pairs: Iterator[tuple[float, Prompt]], duration_s: float | None) -> None:
        async with asyncio.TaskGroup() as group:
            for moment, prompt in pairs:
                if duration_s is not None and moment >= duration_s:
                    return
                await asyncio.sleep(max(0.0, moment - self._now()))
                group.create_task(self._send(prompt, moment))

    async def _send(self, prompt: Prompt, moment: float) -> None:
        record = await ask(self._wire, self._target, prompt, self._now, moment)
        self._records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def _now(self) -> float:
        return time.perf_counter() - self._start


def _made(mix: PromptMix, count: int | None) -> Iterator[Prompt]:
    """Ready prompts, where their number is known: to cut a text to so many tokens takes
    milliseconds, in which no answer would be read."""
    prompts = islice(mix.prompts(), count)
    return prompts if count is None else iter(list(prompts))


def _describe(mix: PromptMix) -> str:
    unit = "tokens" if mix.count_tokens else "words"
    text = f"{mix.input_len} {unit} in, {mix.output_len} tokens out"
    if mix.shared_len:
        text += f", the first {mix.shared_len} {unit} one of {mix.num_shared}"
    return text

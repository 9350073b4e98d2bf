"""Runs a workload on an engine in this process and times every token."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from octavo.bench.results import EngineResult, Run, Workload
from octavo.errors import EngineError
from octavo.records import replace

if TYPE_CHECKING:
    from octavo.engine import Engine, Request


def bench_engine(
    engine: Engine,
    workload: Workload,
    *,
    repetitions: int = 3,
    on_run: Callable[[Run], None] | None = None,
) -> EngineResult:
    """A warm-up of as many tokens a step, and `repetitions` measured runs, each with fresh prompts.

    on_run: called after each measured run, to show progress.
    """
    warm_up = replace(workload, output_len=min(workload.output_len, 4))
    run_once(engine, warm_up, repetition=-1)
    runs = []
    for repetition in range(repetitions):
        runs.append(run_once(engine, workload, repetition))
        if on_run:
            on_run(runs[-1])
    return EngineResult.of(runs)


def run_once(engine: Engine, workload: Workload, repetition: int = 0) -> Run:
    """All requests at once, stepped until done. The prefix cache is not read."""
    requests = _requests(engine, workload, repetition)
    times: dict[str, list[float]] = {request.request_id: [] for request in requests}
    start = time.perf_counter()
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        deltas = engine.step()
        now = time.perf_counter() - start
        for delta in deltas:
            if delta.finish_reason == "error":
                raise EngineError(f"bench: {delta.error}")
            times[delta.request_id] += [now] * len(delta.token_ids)
    return Run(workload, list(times.values()), time.perf_counter() - start)


def _requests(engine: Engine, workload: Workload, repetition: int) -> list[Request]:
    from octavo.decoding import SamplingParams
    from octavo.engine import Request

    draw = random.Random(f"{workload.seed}/{repetition}")
    params = SamplingParams(temperature=0.0, max_tokens=workload.output_len, ignore_eos=True)
    return [
        Request(
            f"bench-{repetition}-{i}",
            [_plain_token(engine, draw) for _ in range(workload.input_len)],
            params,
            arrival_s=time.monotonic(),
            use_prefix_cache=False,
        )
        for i in range(workload.concurrency)
    ]


def _plain_token(engine: Engine, draw: random.Random) -> int:
    """A random id that is no special token: those would change what a model does."""
    tokenizer = engine.tokenizer
    special = {engine.config.bos_token_id, *engine.config.eos_token_ids}
    while True:
        token = draw.randrange(engine.config.vocab_size)
        if token not in special and not (tokenizer and tokenizer.is_special(token)):
            return token

"""Engines under load for benchmarks: random prompts, greedy, every request at its full length."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from octavo.decoding import SamplingParams
from octavo.engine import Delta, Engine, Request

_numbers = itertools.count()


def add_requests(engine: Engine, streams: int, input_len: int, output_len: int) -> None:
    """Queue so many requests; none of them reads the prefix cache."""
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    special = {engine.config.bos_token_id, *engine.config.eos_token_ids}
    plain = [i for i in range(1000, engine.config.vocab_size) if i not in special]
    for _ in range(streams):
        number = next(_numbers)
        ids = random.Random(number).choices(plain, k=input_len)
        arrival = time.monotonic()
        request = Request(f"load-{number}", ids, params, arrival_s=arrival, use_prefix_cache=False)
        engine.add_request(request)


def until_all_decode(engine: Engine) -> None:
    """Step until every queued prompt is computed; from there on a step is one token a stream."""
    waiting = engine.stats().num_waiting
    seen: set[str] = set()
    while len(seen) < waiting:
        seen |= {delta.request_id for delta in _step(engine)}


def steps(engine: Engine) -> Iterator[int]:
    """Step to the end; the number of tokens of each step."""
    while engine.has_work():
        yield sum(len(delta.token_ids) for delta in _step(engine))


def _step(engine: Engine) -> list[Delta]:
    deltas = engine.step()
    for delta in deltas:
        if delta.finish_reason == "error":
            raise SystemExit(f"the step failed: {delta.error}")
    return deltas

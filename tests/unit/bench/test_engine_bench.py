"""The benchmark loop on an engine that counts what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from octavo.bench import Workload, bench_engine, run_once
from octavo.engine.types import Delta, Request
from octavo.errors import EngineError

SPECIAL = set(range(90))


@dataclass
class CountingEngine:
    """Gives every running request one token a step."""

    requests: list[Request] = field(default_factory=list)
    fail: bool = False

    def __post_init__(self) -> None:
        self.config = SimpleNamespace(vocab_size=100, bos_token_id=90, eos_token_ids=(91,))
        self.tokenizer = SimpleNamespace(is_special=SPECIAL.__contains__)
        self._left: dict[str, int] = {}

    def add_request(self, request: Request) -> None:
        self.requests.append(request)
        assert request.params.max_tokens is not None
        self._left[request.request_id] = request.params.max_tokens

    def has_work(self) -> bool:
        return bool(self._left)

    def step(self) -> list[Delta]:
        if self.fail:
            return [Delta(i, 0, "", [], finish_reason="error", error="broken") for i in self._left]
        deltas = [Delta(i, 0, "x", [92]) for i in self._left]
        self._left = {i: n - 1 for i, n in self._left.items() if n > 1}
        return deltas


def test_every_request_is_as_asked():
    engine = CountingEngine()
    run = run_once(engine, Workload(20, 5, 3))
    assert run.num_output_tokens == 15
    for request in engine.requests:
        assert len(request.prompt_ids) == 20
        assert set(request.prompt_ids) <= set(range(92, 100))
        assert request.params.ignore_eos
        assert not request.use_prefix_cache


def test_prompts_depend_on_seed_and_repetition_alone():
    def prompts(seed: int, repetition: int) -> list[list[int]]:
        engine = CountingEngine()
        run_once(engine, Workload(20, 1, 2, seed), repetition)
        return [request.prompt_ids for request in engine.requests]

    assert prompts(0, 0) == prompts(0, 0)
    assert len({str(prompts(s, r)) for s in (0, 1) for r in (0, 1)}) == 4


def test_warm_up_is_not_counted():
    seen = []
    result = bench_engine(CountingEngine(), Workload(20, 5, 2), repetitions=3, on_run=seen.append)
    assert result.repetitions == len(seen) == 3
    assert all(run.workload.input_len == 20 for run in seen)


def test_failed_request_ends_the_benchmark():
    with pytest.raises(EngineError, match="broken"):
        run_once(CountingEngine(fail=True), Workload(4, 2, 1))

"""Whatever the company, limits and interruptions: a request gets what a lone run gives it."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine import Collector, CompletionOutput
from tests.support.engines import null_engine, request

Spec = tuple[int, int, int, int, bool]


def prompt_of(kind: int, length: int) -> list[int]:
    """Prompts of one kind share a prefix."""
    return [(kind * 50 + i) % 250 for i in range(length)]


def build(name: str, spec: Spec, priority: int = 0):
    kind, length, outputs, n, scored = spec
    return request(
        name,
        prompt_of(kind, length),
        priority=priority,
        max_tokens=outputs,
        n=n,
        logprobs=2,
        prompt_logprobs=1 if scored else None,
        temperature=0.7,
        repetition_penalty=1.2,
        seed=kind,
    )


@cache
def alone(spec: Spec, products: str) -> tuple[list[CompletionOutput], object]:
    engine = null_engine(num_kv_blocks=200, enable_prefix_caching=False, products=products)
    wanted = build("alone", spec)
    engine.add_request(wanted)
    collector = Collector(wanted)
    while engine.has_work():
        for delta in engine.step():
            collector.add(delta)
    return collector.output.outputs, collector.output.prompt_logprobs


spec = st.tuples(
    st.integers(0, 2), st.integers(1, 24), st.integers(1, 9), st.integers(1, 3), st.booleans()
)
arrival = st.tuples(spec, st.integers(-1, 1), st.integers(0, 3), st.integers(0, 30))


@settings(max_examples=40, deadline=None)
@given(
    arrivals=st.lists(arrival, min_size=1, max_size=8),
    num_blocks=st.integers(9, 40),
    rows=st.integers(3, 8),
    budget=st.integers(3, 40),
    policy=st.sampled_from(["fcfs", "priority"]),
    caching=st.booleans(),
    products=st.sampled_from(["int8", "mixed"]),
)
def test_a_request_gets_what_a_lone_run_gives_it(
    arrivals: list[tuple[Spec, int, int, int]],
    num_blocks: int,
    rows: int,
    budget: int,
    policy: str,
    caching: bool,
    products: str,
) -> None:
    engine = null_engine(
        products=products,
        num_kv_blocks=num_blocks,
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        scheduling_policy=policy,
        enable_prefix_caching=caching,
    )
    collectors: dict[str, tuple[Collector, Spec]] = {}
    aborts: dict[str, int] = {}
    now = 0

    def step() -> None:
        nonlocal now
        for delta in engine.step():
            if delta.request_id in collectors:
                collectors[delta.request_id][0].add(delta)
        now += 1
        for name, due in list(aborts.items()):
            if due <= now:
                engine.abort(name)
                del aborts[name]

    for i, (wanted, priority, delay, lifetime) in enumerate(arrivals):
        for _ in range(delay):
            step()
        new = build(str(i), wanted, priority)
        engine.add_request(new)
        if lifetime < 8:
            aborts[new.request_id] = now + lifetime
        else:
            collectors[new.request_id] = (Collector(new), wanted)
    for _ in range(1000):
        if not engine.has_work():
            break
        step()
    assert engine.stats().num_used_blocks == 0
    for collector, wanted in collectors.values():
        outputs, prompt_logprobs = alone(wanted, products)
        assert collector.output.finished
        assert collector.output.outputs == outputs
        assert collector.output.prompt_logprobs == prompt_logprobs

"""Counters of the engine: histograms, snapshots, and why sequences wait."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.histogram import Histogram
from octavo.engine.stats import EngineStats
from tests.support.engines import drain, null_engine, request, run

BOUNDS = st.lists(st.floats(0, 100), min_size=1, max_size=8, unique=True).map(sorted).map(tuple)


@given(BOUNDS, st.lists(st.floats(0, 200)))
def test_every_value_is_in_the_bucket_of_the_first_bound_it_does_not_exceed(bounds, values) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    expected = [0] * (len(bounds) + 1)
    for value in values:
        expected[sum(bound < value for bound in bounds)] += 1
    assert histogram.counts == expected
    assert histogram.count == len(values)
    assert histogram.total == sum(values, 0.0)


def test_a_snapshot_does_not_change_and_survives_the_way_between_processes() -> None:
    engine = null_engine()
    run(engine, request("a", [5, 6, 7], max_tokens=4))
    before = engine.stats()
    packed = msgspec.msgpack.encode(asdict(before))
    run(engine, request("b", [5, 6, 7], max_tokens=4))
    assert before.step_tokens.count == before.num_steps == 4
    assert before.step_tokens.total == 3 + 3  # the prompt, then a token a step
    assert engine.stats().step_s.count == engine.stats().num_steps == 8
    assert msgspec.convert(msgspec.msgpack.decode(packed), EngineStats) == before


def test_the_queue_says_who_ran_before() -> None:
    engine = null_engine(num_kv_blocks=8)  # 32 tokens: two requests outgrow it
    for name in ("a", "b"):
        engine.add_request(request(name, [1] * 8, max_tokens=16, ignore_eos=True))
    engine.add_request(request("c", [2] * 12, max_tokens=16, ignore_eos=True))
    seen = []
    while engine.has_work():
        engine.step()
        seen.append(engine.stats().waiting_by_reason)
    assert {"capacity": 1, "preempted": 0} in seen
    assert any(reasons["preempted"] for reasons in seen)
    assert seen[-1] == {"capacity": 0, "preempted": 0}


def test_a_request_tells_how_often_it_was_preempted() -> None:
    engine = null_engine(num_kv_blocks=8)
    for name in ("a", "b"):
        engine.add_request(request(name, [1] * 8, max_tokens=16, ignore_eos=True))
    ends = {d.request_id: d.metrics.num_preemptions for d in drain(engine) if d.metrics}
    assert sum(ends.values()) == engine.stats().num_preemptions > 0
    assert ends["a"] == 0


def test_an_aborted_preempted_request_leaves_the_queue() -> None:
    engine = null_engine(num_kv_blocks=8)
    for name in ("a", "b"):
        engine.add_request(request(name, [1] * 8, max_tokens=16, ignore_eos=True))
    while not engine.stats().num_waiting_preempted:
        engine.step()
    engine.abort("b")
    assert engine.stats().waiting_by_reason == {"capacity": 0, "preempted": 0}
    drain(engine)


def test_hit_rate_of_an_unused_cache_is_zero() -> None:
    assert EngineStats().prefix_cache_hit_rate == 0.0
    assert EngineStats(prefix_cache_queries=4, prefix_cache_hits=1).prefix_cache_hit_rate == 0.25

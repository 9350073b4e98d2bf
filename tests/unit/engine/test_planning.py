"""Options and the memory plan."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.backends import MemoryPlan
from octavo.engine import EngineOptions
from octavo.engine.planning import EnginePlan, plan_engine, size
from octavo.errors import InvalidParameterError, MemoryPlanError
from octavo.machine import Memory

MB = 10**6
NEED = MemoryPlan(weight_bytes=100 * MB, arena_bytes=20 * MB, kv_bytes_per_block=MB)


def plan(
    available: int = 1000 * MB, context: int = 1024, grammars: int = 0, **options: Any
) -> EnginePlan:
    memory = Memory(limit=2 * available, available=available, source="cgroup")
    return plan_engine(NEED, context, EngineOptions("m", **options), memory, 2, "tiny", grammars)


def test_kv_is_as_large_as_needed_but_a_quarter_of_what_is_free_at_most() -> None:
    assert plan(max_num_seqs=2).num_blocks == 2 * 1024 // 32
    assert plan(max_num_seqs=64).num_blocks == 208  # (1000 - 120) / 4, in groups of 16


def test_a_cache_of_less_than_a_block_says_what_a_block_is() -> None:
    with pytest.raises(
        MemoryPlanError, match=r"10 B of KV cache .* one block of 1.0 MB; .*32.0 MB"
    ):
        plan(kv_cache_bytes=10)


NUMBERS = (
    *("block_size", "max_num_seqs", "max_num_batched_tokens", "max_num_mixed_tokens", "max_queue"),
    *("max_queued_tokens", "max_model_len", "kv_cache_bytes", "num_kv_blocks", "num_threads"),
)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, 1 << 64, 10**400, 1.5, "3", True, [], float("nan")])
def test_numbers_that_nothing_can_hold_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        EngineOptions("m", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [0, -1, 10**400, float("nan"), float("inf"), "x", None])
def test_weights_of_tenants_are_numbers_above_0(weight: Any) -> None:
    with pytest.raises(InvalidParameterError, match="tenant_weights"):
        EngineOptions("m", tenant_weights={"a": weight})


def test_max_model_len_follows_context_and_cache() -> None:
    assert plan(max_num_seqs=1).max_model_len == 1024
    assert plan(num_kv_blocks=10).max_model_len == 320
    assert plan(max_model_len=100, num_kv_blocks=10).max_model_len == 100


def test_an_asked_for_length_may_take_more_than_a_quarter() -> None:
    assert plan(context=32 * 1024).num_blocks == 220
    assert plan(context=32 * 1024, max_model_len=32 * 500).num_blocks == 500
    with pytest.raises(MemoryPlanError, match=r"704 blocks holds 22,528 tokens.*32,000"):
        plan(context=32 * 1024, max_model_len=32 * 1000)


def test_explicit_sizes_are_taken_as_they_are() -> None:
    assert plan(kv_cache_bytes=7 * MB + 1).num_blocks == 7
    assert plan(num_kv_blocks=9, kv_cache_bytes=MB).num_blocks == 9


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(MemoryPlanError, match=r"900\.0 MB of KV cache do not fit in 1\.0 GB"):
        plan(num_kv_blocks=900)
    with pytest.raises(MemoryPlanError, match=r"not one KV block.*110\.0 MB"):
        plan(available=110 * MB)
    with pytest.raises(MemoryPlanError, match="do not hold one block"):
        plan(kv_cache_bytes=10)
    with pytest.raises(MemoryPlanError, match="2 blocks holds 64 tokens"):
        plan(num_kv_blocks=2, max_model_len=100)


def test_what_grammars_share_is_kept_free() -> None:
    assert plan(max_num_seqs=64, grammars=80 * MB).num_blocks == 192  # (1000 - 200) / 4, likewise
    with pytest.raises(MemoryPlanError, match=r"arena, 40\.0 MB for grammars and 850\.0 MB of KV"):
        plan(num_kv_blocks=850, grammars=40 * MB)
    report = str(plan(max_num_seqs=2, grammars=40 * MB))
    assert "grammars  40.0 MB, tokens by their bytes\ntotal     224.0 MB" in report


def test_a_length_beyond_the_context_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"max_model_len.*1,024"):
        plan(max_model_len=2000)


def test_the_report_has_every_number() -> None:
    lines = str(plan(max_num_seqs=2)).splitlines()
    assert lines == [
        "model     tiny on cpu, 2 threads",
        "weights   100.0 MB",
        "arena     20.0 MB",
        "kv cache  64.0 MB: 64 blocks of 32",
        "          2,048 tokens, up to 1,024 a request",
        "total     184.0 MB of 1.0 GB available",
        "limit     2.0 GB (cgroup)",
    ]


def test_sizes_for_people() -> None:
    assert [size(n) for n in (12, 1500, 98_362_432, 2 * 10**9)] == [
        "12 B",
        "1.5 kB",
        "98.4 MB",
        "2.0 GB",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", 0),
        ("max_num_seqs", -1),
        ("max_num_batched_tokens", True),
        ("max_queue", 0),
        ("max_model_len", 0),
        ("kv_cache_bytes", -5),
        ("num_kv_blocks", 1.5),
        ("weights", "tiny"),
        ("kv_dtype", "f8"),
        ("scheduling_policy", "random"),
        ("num_threads", -1),
    ],
)
def test_bad_options_name_themselves(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError, match=name) as caught:
        EngineOptions("m", **{name: value})
    assert caught.value.param == name

"""The scheduler without any model: each decision by example, then everything at random."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.scheduler import Sequence, Status
from tests.support.scheduling import Driver, next_token


def expected(prompt: list[int], outputs: int, sample: int = 0) -> list[int]:
    ids = list(prompt)
    for _ in range(outputs):
        ids.append(next_token(tuple(ids), sample))
    return ids


def test_a_long_prompt_never_stalls_running_streams() -> None:
    d = Driver(budget=8)
    (stream,) = d.add([1, 2], outputs=30)
    d.step()
    (long,) = d.add([3] * 50, outputs=1)
    steps = 0
    while long.prefilling:
        plan = d.step()
        steps += 1
        assert plan.decodes == [stream]
        assert plan.num_tokens == min(8, 1 + 50 - (steps - 1) * 7)
    assert steps == 8
    assert stream.num_output == 1 + steps


def test_prompts_beside_decodes_have_a_smaller_budget() -> None:
    d = Driver(budget=16, mixed=5)
    (first,) = d.add([1] * 30, outputs=30)
    assert [d.step().num_tokens for _ in range(2)] == [16, 14]  # nobody decodes: the whole budget
    d.add([2] * 7, outputs=2)
    d.add([3] * 7, outputs=2)
    counts = []
    for _ in range(3):
        plan = d.step()
        assert first in plan.decodes
        counts.append([c.count for c in plan.chunks])
    assert counts == [[5], [2, 3], [4]]


def test_several_prompts_share_one_step() -> None:
    d = Driver(budget=16)
    for _ in range(3):
        d.add([1] * 5, outputs=1)
    plan = d.step()
    assert [c.count for c in plan.chunks] == [5, 5, 5]


def test_first_come_first_served_without_overtaking() -> None:
    d = Driver(num_blocks=8, budget=64, caching=False)
    (a,) = d.add([1] * 20, outputs=4)
    (b,) = d.add([2] * 20, outputs=1)
    (c,) = d.add([3] * 2, outputs=1)
    d.step()
    assert [s.status for s in (a, b, c)] == [Status.RUNNING, Status.WAITING, Status.WAITING]
    d.run()
    assert c.ids == expected([3] * 2, 1)


def test_preemption_takes_the_latest_and_repeats_nothing() -> None:
    d = Driver(num_blocks=6, budget=64)
    prompts = [[1, 2, 3], [4, 3, 2], [0, 1]]
    sequences = [d.add(p, outputs=14)[0] for p in prompts]
    preempted: list[Sequence] = []
    while d.scheduler.has_work():
        preempted += d.step().preempted
    assert preempted
    assert sequences[0] not in preempted
    assert d.scheduler.num_preemptions == len(preempted)
    assert [s.ids for s in sequences] == [expected(p, 14) for p in prompts]


def test_nobody_is_admitted_only_to_be_preempted_at_once() -> None:
    d = Driver(num_blocks=4, budget=64, caching=False)
    d.add([1] * 8, outputs=5)
    (late,) = d.add([2] * 8, outputs=5)
    d.step()
    assert late.status is Status.WAITING  # it would fit now, but the first needs a block next
    d.run()
    assert d.scheduler.num_preemptions == 0


def test_a_cached_prompt_computes_only_its_last_block() -> None:
    d = Driver(budget=64)
    prompt = list(range(12))
    d.add(prompt, outputs=1)
    d.run()
    d.add(prompt, outputs=2)
    plan = d.step()
    assert [(c.start, c.count) for c in plan.chunks] == [(8, 4)]
    assert (d.scheduler.num_prompt_queries, d.scheduler.num_prompt_hits) == (24, 8)
    d.run()


def test_samples_share_the_prompt_and_copy_on_write() -> None:
    d = Driver(budget=64)
    prompt = [1, 2, 3, 4, 5, 6]
    samples = d.add(prompt, outputs=9, n=3)
    plan = d.step()
    assert plan.num_tokens == 6
    assert d.num_blocks - d.cache.pool.num_free == 2
    d.run()
    assert [s.ids for s in samples] == [expected(prompt, 9, i) for i in range(3)]


def test_samples_survive_preemption() -> None:
    d = Driver(num_blocks=6, budget=64)
    prompt = [1, 2, 3, 4, 0, 1]
    samples = d.add(prompt, outputs=12, n=4)
    d.run()
    assert d.scheduler.num_preemptions > 0
    assert [s.ids for s in samples] == [expected(prompt, 12, i) for i in range(4)]


def test_priority_displaces_and_the_displaced_comes_back_whole() -> None:
    d = Driver(num_blocks=6, rows=2, budget=64, priority=True)
    low = [d.add([i, 1], outputs=10, priority=5)[0] for i in range(2)]
    d.step()
    (high,) = d.add([4, 4, 4], outputs=3, priority=-1)
    plan = d.step()
    assert plan.preempted == [low[1]]
    assert high.status is Status.RUNNING
    d.run()
    assert [s.ids for s in low] == [expected([i, 1], 10) for i in range(2)]
    assert high.ids == expected([4, 4, 4], 3)


def test_equal_priority_displaces_nobody() -> None:
    d = Driver(rows=1, priority=True)
    d.add([1], outputs=5)
    d.step()
    d.add([2], outputs=5)
    assert d.step().preempted == []


def test_fcfs_ignores_priority() -> None:
    d = Driver(rows=1)
    (first,) = d.add([1], outputs=2, priority=9)
    d.add([2], outputs=2, priority=0)
    assert d.step().chunks[0].sequence is first


def test_finish_frees_rows_and_blocks_in_every_state() -> None:
    d = Driver(rows=4)
    running = d.add([1] * 6, outputs=50)
    forking = d.add([2] * 30, outputs=50, n=3)
    waiting = d.add([3], outputs=50)
    d.step()
    assert forking[1].status is Status.FORKING
    assert waiting[0].status is Status.WAITING
    for seq in running + forking + waiting:
        d.scheduler.finish(seq)
    assert not d.scheduler.has_work()
    assert d.cache.pool.num_free == d.num_blocks
    d.add([1], outputs=1, n=4)
    d.run()


def test_scoring_chunks_stop_before_the_last_prompt_token() -> None:
    d = Driver(rows=4, budget=16)
    (seq,) = d.add(list(range(10)), outputs=2)
    seq.num_to_score = 9
    seen = []
    while seq.prefilling:
        seen += [(c.start, c.count, c.score) for c in d.step().chunks]
    assert seen == [(0, 4, True), (4, 4, True), (8, 1, True), (9, 1, False)]
    d.run()


def test_many_cancelled_waiters_do_not_pile_up() -> None:
    d = Driver(rows=1)
    d.add([1], outputs=3)
    for _ in range(500):
        (seq,) = d.add([2], outputs=1)
        d.scheduler.finish(seq)
    (line,) = d.scheduler.waiting._classes[0].lines.values()
    assert len(line.heap) < 200
    assert len(d.scheduler.waiting) == 1
    d.run()


request = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=17),  # prompt
    st.integers(1, 9),  # outputs
    st.integers(1, 3),  # samples
    st.integers(-2, 2),  # priority
    st.integers(0, 4),  # steps before it arrives
    st.integers(0, 60),  # aborted after so many more steps, if it lives that long
)


@settings(max_examples=150, deadline=None)
@given(
    requests=st.lists(request, min_size=1, max_size=10),
    num_blocks=st.integers(7, 24),  # the largest request needs 7
    rows=st.integers(3, 8),
    budget=st.integers(3, 40),
    priority=st.booleans(),
    caching=st.booleans(),
    mixed=st.integers(1, 40),
    num_tenants=st.integers(1, 3),
)
def test_every_request_gets_the_tokens_of_a_lone_run(
    requests: list[tuple[list[int], int, int, int, int, int]],
    num_blocks: int,
    rows: int,
    budget: int,
    priority: bool,
    caching: bool,
    mixed: int,
    num_tenants: int,
) -> None:
    d = Driver(num_blocks, rows, budget, priority, caching, mixed)
    aborts: list[tuple[int, list[Sequence]]] = []
    finished: list[tuple[list[Sequence], list[int], int]] = []
    now = 0
    for prompt, outputs, n, prio, delay, lifetime in requests:
        for _ in range(delay):
            d.step()
            now += 1
            for due, samples in aborts:
                if due <= now:
                    for seq in samples:
                        d.scheduler.finish(seq)
        samples = d.add(prompt, outputs, n, prio, tenant=str(len(aborts) % num_tenants))
        if lifetime < 20:
            aborts.append((now + lifetime, samples))
        else:
            finished.append((samples, prompt, outputs))
    d.run()
    for samples, prompt, outputs in finished:
        assert [s.ids for s in samples] == [
            expected(prompt, outputs, i) for i in range(len(samples))
        ]

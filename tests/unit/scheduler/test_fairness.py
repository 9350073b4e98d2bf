"""Tenants share the machine by their weights: never far from their due, nobody idle or starved."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.scheduler import Sequence, WaitingQueue
from octavo.scheduler.shares import MAX_ACCOUNTS, OUTPUT_COST, PROMPT_COST, Ledger
from tests.support.scheduling import Driver


def counters(d: Driver) -> dict[str, float]:
    return {name: account.counter for name, account in d.scheduler.ledger._accounts.items()}


def test_a_newly_active_tenant_begins_at_the_least_of_the_waiting_ones() -> None:
    ledger = Ledger()
    queue: WaitingQueue[Sequence] = WaitingQueue(ledger)

    def wait(tenant: str, arrival: int) -> Sequence:
        sequence = Sequence([1], Driver().cache.new_table(), (0, arrival, 0), tenant)
        queue.push(sequence)
        return sequence

    wait("a", 1)
    wait("b", 2)
    ledger.account("a").counter = 100.0
    ledger.account("b").counter = 70.0
    late = wait("c", 3)
    assert late.account.counter == 70.0
    assert queue.peek() is not late  # on a tie, who was there first


def test_who_was_alone_does_not_pay_for_it() -> None:
    """A tenant that had the machine to itself is not behind one that comes afterwards."""
    d = Driver(rows=2)
    for _ in range(20):
        d.add([1] * 8, outputs=4, tenant="early")
    d.run()
    (late,) = d.add([2] * 8, outputs=1, tenant="late")
    (again,) = d.add([3] * 8, outputs=1, tenant="early")
    served = counters(d)
    assert abs(served["late"] - served["early"]) <= 8 * PROMPT_COST + 2 * 4 * OUTPUT_COST
    d.run()
    assert late.status is again.status


def test_the_tenant_that_is_owed_more_goes_first() -> None:
    d = Driver(rows=1, budget=100)
    for _ in range(5):
        d.add([1] * 8, outputs=1, tenant="flood")
    (light,) = d.add([2] * 2, outputs=1, tenant="light")
    order = []
    while d.scheduler.has_work():
        order += [chunk.sequence.tenant for chunk in d.step().chunks]
    assert order.index("light") == 1
    assert light.num_output == 1


def test_a_newcomer_takes_a_row_from_who_holds_more_than_a_share() -> None:
    d = Driver(rows=4, budget=100)
    for _ in range(10):
        d.add([1, 2], outputs=40, tenant="flood")
    d.step()
    (light,) = d.add([3, 4], outputs=3, tenant="light")
    plan = d.step()
    assert light in plan.admitted
    assert [s.tenant for s in plan.preempted] == ["flood"]
    assert d.scheduler.ledger.account("flood").num_rows == 3
    d.run()


def test_no_more_than_a_share_is_taken() -> None:
    d = Driver(rows=4, budget=100)
    for _ in range(10):
        d.add([1, 2], outputs=40, tenant="flood")
    d.step()
    for _ in range(10):
        d.add([3, 4], outputs=40, tenant="other")
    for _ in range(6):
        d.step()
    for _ in range(20):
        d.step()
        ledger = d.scheduler.ledger
        assert ledger.account("flood").num_rows == ledger.account("other").num_rows == 2
    assert d.scheduler.num_preemptions == 2  # and never again
    d.run()


def test_a_newcomer_takes_blocks_too() -> None:
    """Rows are free, but a flood's long sequences hold every block."""
    d = Driver(num_blocks=16, rows=8, budget=100, caching=False)
    for _ in range(4):
        d.add([1] * 12, outputs=16, tenant="flood")
    while d.cache.pool.num_free > 2:
        d.step()
    (light,) = d.add([3] * 9, outputs=3, tenant="light")
    d.step()
    assert light.row >= 0
    d.run()


def test_a_long_prompt_of_one_tenant_does_not_hold_up_another() -> None:
    d = Driver(budget=4)
    (long,) = d.add([1] * 60, outputs=1, tenant="long")
    d.step()
    (short,) = d.add([2, 3], outputs=1, tenant="short")
    d.step()
    assert short.num_output == 1
    assert long.prefilling
    d.run()


def test_accounts_of_many_tenants_are_forgotten() -> None:
    d = Driver(budget=100)
    for i in range(MAX_ACCOUNTS + 500):
        d.add([1], outputs=1, tenant=f"t{i}")
        if i % 8 == 0:
            d.run()
    assert len(d.scheduler.ledger._accounts) <= MAX_ACCOUNTS + 1
    d.run()
    assert d.scheduler.ledger.num_active == 0


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=4),
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 8)), min_size=2, max_size=4),
    rows=st.integers(1, 6),
    budget=st.integers(6, 32),
    steps=st.integers(20, 120),
)
def test_unfairness_is_bounded_and_no_row_is_idle(
    weights: list[float],
    sizes: list[tuple[int, int]],
    rows: int,
    budget: int,
    steps: int,
) -> None:
    """Between tenants that always wait, weighted service differs by no more than what is admitted
    at once can add; and as long as somebody waits, rows or budget are used up."""
    names = [str(i) for i in range(min(len(weights), len(sizes)))]
    d = Driver(400, rows, budget, weights=dict(zip(names, weights, strict=False)))
    sent: Counter[str] = Counter()

    def feed() -> None:
        for name, (prompt, outputs) in zip(names, sizes, strict=False):
            while sent[name] - done[name] < rows + 2:
                sent[name] += 1
                live[d.add([int(name)] * prompt, outputs, tenant=name)[0]] = name

    done: Counter[str] = Counter()
    live: dict[Sequence, str] = {}
    for _ in range(steps):
        feed()
        plan = d.step()
        assert plan
        for sequence in [s for s in live if s.status.value == "finished"]:
            done[live.pop(sequence)] += 1
        assert len(plan.decodes) + len(plan.chunks) == rows or plan.num_tokens == budget
    served = counters(d)
    prompt, outputs = max(p for p, _ in sizes), max(o for _, o in sizes)
    least = min(weights[: len(names)])
    bound = 2 * rows * (prompt * PROMPT_COST + outputs * OUTPUT_COST) / least
    assert max(served.values()) - min(served.values()) <= bound
    d.run(5000)


@pytest.mark.parametrize("heavy", [1.0, 3.0])
def test_weights_are_shares_of_the_service(heavy: float) -> None:
    d = Driver(400, rows=4, budget=16, weights={"heavy": heavy})
    for _ in range(200):
        d.add([1] * 4, outputs=4, tenant="heavy")
        d.add([2] * 4, outputs=4, tenant="plain")
    finished: Counter[str] = Counter()
    for _ in range(120):
        d.step()
    for sequence in d.limits:
        finished[sequence.tenant] += sequence.num_output
    assert finished["heavy"] / finished["plain"] == pytest.approx(heavy, rel=0.25)


def test_a_short_prompt_is_computed_in_one_go_beside_a_flood() -> None:
    """It waits for one step at most, and then nobody comes between its chunks."""
    d = Driver(400, rows=8, budget=64, mixed=24)
    for _ in range(40):
        d.add([1] * 16, outputs=4, tenant="flood")
    for _ in range(10):
        d.step()
    (light,) = d.add([2] * 60, outputs=1, tenant="light")
    steps = 0
    while not light.num_output:
        d.step()
        steps += 1
    assert steps <= 1 + 3  # 60 tokens beside decodes take three steps
    d.run()

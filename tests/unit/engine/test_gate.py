"""The queue's door: bounds, when to come again, and tenants that others shut out."""

from __future__ import annotations

import pytest

from octavo.engine.gate import MAX_RETRY_S, Gate, Queue
from octavo.errors import DeadlineError, QueueFullError


def draining(gate: Gate, per_s: float, num_tokens: int = 100, count: int = 20) -> float:
    """Let requests leave the queue at a rate; returns the time it is then."""
    for i in range(count + 1):
        gate.rate.left(i / per_s, num_tokens, others_wait=True)
    return count / per_s


def refusal(gate: Gate, now: float, queue: Queue, num_tokens: int = 10) -> QueueFullError:
    with pytest.raises(QueueFullError) as caught:
        gate.check(now, queue, "", num_tokens)
    return caught.value


def test_bounds() -> None:
    gate = Gate(4, 1000)
    gate.check(0, Queue(3, 900), "", 100)
    refusal(gate, 0, Queue(4, 100))
    refusal(gate, 0, Queue(1, 900), 101)
    gate.check(0, Queue(0, 0), "", 5000)  # alone, it may be longer than the bound
    gate.check(0, Queue(7, 100, free_rows=4), "", 1)  # four of the seven will run at once
    assert gate.is_full(Queue(4, 0))
    assert gate.is_full(Queue(1, 1000))
    assert not gate.is_full(Queue(4, 0, free_rows=1))


def test_without_a_measure_retry_is_a_second() -> None:
    assert refusal(Gate(1, 10), 0, Queue(1, 1)).retry_after_s == 1


def test_each_refused_client_is_given_the_next_place() -> None:
    gate = Gate(100, 10**6)
    now = draining(gate, per_s=0.5)
    waits = [refusal(gate, now, Queue(100, 100)).retry_after_s for _ in range(5)]
    assert waits == [2, 4, 6, 8, 10]
    for later in (2, 4, 6, 8):
        gate.rate.left(now + later, 100, others_wait=True)
    assert refusal(gate, now + 8, Queue(100, 100)).retry_after_s == 4  # places are taken up


def test_retry_has_a_bound() -> None:
    gate = Gate(10, 10**6)
    now = draining(gate, per_s=0.5)
    waits = [refusal(gate, now, Queue(10, 100)).retry_after_s for _ in range(50)]
    assert waits[-1] == 20  # by then the whole queue is gone
    slow = Gate(10, 10**6)
    now = draining(slow, per_s=0.01)
    assert refusal(slow, now, Queue(10, 100)).retry_after_s == MAX_RETRY_S


def test_tokens_over_the_bound_take_their_time() -> None:
    gate = Gate(100, 1000)
    now = draining(gate, per_s=1.0, num_tokens=50)
    assert refusal(gate, now, Queue(3, 1000), 200).retry_after_s == 4


def test_a_queue_that_runs_empty_says_nothing_of_the_rate() -> None:
    gate = Gate(10, 1000)
    now = draining(gate, per_s=1.0)
    assert gate.rate.requests_per_s(now) == pytest.approx(1.0)
    gate.rate.left(now, 1, others_wait=False)
    assert gate.rate.requests_per_s(now) is None


def test_a_stalled_queue_drains_slower_and_slower() -> None:
    gate = Gate(10, 1000)
    now = draining(gate, per_s=1.0)
    rate = gate.rate.requests_per_s(now + 60)
    assert rate is not None
    assert rate < 0.3


def test_a_flood_does_not_shut_others_out() -> None:
    gate = Gate(10, 10**6)
    for _ in range(10):
        gate.entered("flood", 10)
    full = Queue(10, 100)
    with pytest.raises(QueueFullError):
        gate.check(0, full, "flood", 10)
    for _ in range(5):  # half of the queue is the newcomer's share
        gate.check(0, full, "light", 10)
        gate.entered("light", 10)
        full = Queue(full.num_requests + 1, full.num_tokens + 10)
    with pytest.raises(QueueFullError):
        gate.check(0, full, "light", 10)
    with pytest.raises(QueueFullError):
        gate.check(0, Queue(20, 200), "third", 10)  # twice the bound is the end


def test_weights_are_shares() -> None:
    gate = Gate(10, 10**6, {"light": 9.0})
    for _ in range(10):
        gate.entered("flood", 10)
    for _ in range(9):
        gate.check(0, Queue(15, 150), "light", 10)
        gate.entered("light", 10)
    with pytest.raises(QueueFullError):
        gate.check(0, Queue(15, 150), "light", 10)


def test_what_cannot_be_in_time_is_refused_at_once() -> None:
    gate = Gate(1000, 10**6)
    for _ in range(50):
        gate.entered("", 100)
    gate.check_deadline(0, "", 100, deadline_s=0.1)  # nothing measured, nothing refused
    now = draining(gate, per_s=1.0, num_tokens=100)
    gate.check_deadline(now, "", 100, deadline_s=now + 26)
    with pytest.raises(DeadlineError, match="50 requests"):
        gate.check_deadline(now, "", 100, deadline_s=now + 25)
    gate.check_deadline(now, "other", 100, deadline_s=now + 1)  # its queue is short
    for _ in range(50):
        gate.started("", 100)
    gate.check_deadline(now, "", 100, deadline_s=now + 1)

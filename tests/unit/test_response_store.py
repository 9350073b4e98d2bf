"""The store of responses: bounded by count, bytes and time; each owner sees only what is theirs."""

from __future__ import annotations

import asyncio

from octavo.serving.openai.responses.answer import Response
from octavo.serving.openai.responses.store import ResponseStore, Stored


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stored(name: str, owner: str = "", size: int = 0) -> Stored:
    return Stored(Response(id=name, created_at=0, model="m"), owner, [{"x": "y" * size}], [])


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(max_responses=2)
    store.put(stored("a"))
    store.put(stored("b"))
    assert store.get("a", "")
    store.put(stored("c"))
    assert [bool(store.get(name, "")) for name in "abc"] == [True, False, True]


def test_bytes_are_bounded() -> None:
    store = ResponseStore(max_bytes=10_000)
    for number in range(50):
        store.put(stored(str(number), size=1000))
        assert store.size_bytes <= 10_000
    assert 0 < len(store) < 10
    store.put(stored("huge", size=20_000))
    assert store.get("huge", "") is None
    assert (len(store), store.size_bytes) == (0, 0)


def test_responses_expire() -> None:
    clock = Clock()
    store = ResponseStore(ttl_s=10, clock=clock)
    store.put(stored("a"))
    clock.now = 9
    store.put(stored("b"))
    clock.now = 11
    assert store.get("a", "") is None
    assert store.get("b", "")
    clock.now = 30
    store.put(stored("c"))
    assert len(store) == 1


def test_owners_do_not_see_each_other() -> None:
    store = ResponseStore()
    store.put(stored("a", "alice"))
    assert store.get("a", "alice")
    assert store.get("a", "bob") is None
    assert store.get("a", "") is None


async def test_work_in_progress_stays_and_is_stopped_at_the_end() -> None:
    store = ResponseStore(max_responses=1)
    running = stored("a")
    running.task = asyncio.create_task(asyncio.sleep(60))
    store.put(running)
    for name in "bcd":
        store.put(stored(name))
    assert store.get("a", "") is running
    assert store.num_running() == 1
    await store.close()
    assert running.task.cancelled()

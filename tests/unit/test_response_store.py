"""The store of responses: bounded by count, bytes and time; each owner sees only what is theirs."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


async def reopened(
    folder: Path, store: ResponseStore | None = None, **bounds: Any
) -> ResponseStore:
    """What another server finds after `store` was closed."""
    if store is not None:
        await store.close()
    found = ResponseStore(**bounds)
    found.open(folder)
    return found


async def test_responses_are_there_again_after_a_restart(tmp_path: Path) -> None:
    store = await reopened(tmp_path)
    for name in ("a", "b", "../../c", "d\ud800"):
        kept = stored(name, "alice", size=10)
        kept.history = [{"type": "message", "content": "x\udfffy"}]
        store.put(kept)
    store.drop("b")
    again = await reopened(tmp_path, store)
    found = again.get("a", "alice")
    assert found is not None
    assert (found.input, found.history[0]["type"]) == ([{"x": "y" * 10}], "message")
    assert again.get("../../c", "alice")
    assert again.get("a", "bob") is None
    assert again.get("b", "alice") is None
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path}
    again.drop("a")
    assert (await reopened(tmp_path, again)).get("a", "alice") is None


async def test_bounds_and_times_hold_on_disk(tmp_path: Path) -> None:
    store = await reopened(tmp_path, max_responses=3)
    for number in range(9):
        store.put(stored(str(number)))
    await store.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert len(await reopened(tmp_path, max_responses=2)) == 2
    for path in tmp_path.iterdir():
        kept = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode({**kept, "expires_at": 1.0}))
    assert len(await reopened(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


async def test_what_was_worked_on_has_failed(tmp_path: Path) -> None:
    store = await reopened(tmp_path)
    running = stored("a")
    running.task = asyncio.create_task(asyncio.sleep(60))
    store.put(running)
    found = (await reopened(tmp_path, store)).get("a", "")
    assert found is not None
    assert found.response.status == "failed"
    assert found.response.error is not None


async def test_a_disk_that_refuses_loses_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await reopened(tmp_path)

    def refuse(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    for name in "ab":
        store.put(stored(name))
    await store.close()
    assert store.get("a", "")
    assert caplog.text.count("No space left") == 1
    assert list(tmp_path.iterdir()) == []


GOOD = msgspec.json.encode(
    {
        "response": stored("a").response,
        "owner": "",
        "input": [],
        "history": [],
        "expires_at": 9e9,
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD)), st.binary(max_size=8), st.integers(0, 8))
def test_a_bad_file_is_not_shown(tmp_path: Path, at: int, put: bytes, cut: int) -> None:
    async def run() -> None:
        name = hashlib.sha256(b"a").hexdigest()[:32]
        (tmp_path / f"{name}.json").write_bytes(GOOD[:at] + put + GOOD[at + cut :])
        (tmp_path / "other.json").write_bytes(GOOD)
        store = await reopened(tmp_path)
        assert len(store) <= 1
        await store.close()

    asyncio.run(run())

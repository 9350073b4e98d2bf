"""The engine in its thread: streams, cancellation, errors, and quiet when idle."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from octavo.backends.null import NextToken
from octavo.engine import AsyncEngine, Delta, EngineStats
from octavo.errors import EngineError, InvalidParameterError, PromptTooLongError, QueueFullError
from tests.support.engines import null_engine, request


class Gate:
    """A script that counts up, and waits where it has used up the tokens it was allowed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 10**9

    def allow(self, tokens: int = 10**9) -> None:
        """From now on, so many tokens."""
        with self._changed:
            self._left = tokens
            self._changed.notify_all()

    def __call__(self, token: int, position: int) -> int:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left > 0, timeout=20)
            self._left -= 1
        return (token + 1) % 250


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def engine(gate: NextToken) -> Iterator[AsyncEngine]:
    with AsyncEngine(null_engine(gate, max_num_seqs=2, max_queue=3)) as engine:
        yield engine


async def collect(engine: AsyncEngine, name: str, **params: object) -> list[int]:
    deltas = [d async for d in engine.stream(request(name, [1, 2], **params))]
    assert deltas[-1].finish_reason is not None
    return [token for d in deltas for token in d.token_ids]


async def settled(engine: AsyncEngine) -> EngineStats:
    """Wait until nothing runs any more; the counters at that time."""
    for _ in range(10_000):
        stats = await engine.call(lambda e: e.stats())
        assert isinstance(stats, EngineStats)
        if stats.num_running == stats.num_waiting == stats.num_used_blocks == 0:
            return stats
        await asyncio.sleep(0.002)
    pytest.fail(f"still busy: {engine.stats()}")


async def test_streams_run_together(engine: AsyncEngine) -> None:
    answers = await asyncio.gather(*(collect(engine, str(i), max_tokens=5) for i in range(3)))
    assert answers == [[3, 4, 5, 6, 7]] * 3
    await settled(engine)


async def test_samples_end_one_by_one(engine: AsyncEngine) -> None:
    deltas = [d async for d in engine.stream(request("a", [1], n=2, max_tokens=2))]
    assert sorted(d.index for d in deltas) == [0, 0, 1, 1]


async def test_one_sample_is_stopped(engine: AsyncEngine, gate: Gate) -> None:
    gate.allow(4)
    counts = [0, 0]
    async for delta in engine.stream(request("a", [1, 2], n=2, max_tokens=100)):
        counts[delta.index] += len(delta.token_ids)
        if counts[1] == 1:
            engine.end_sample("a", 1)
            gate.allow()
    assert counts[0] == 100
    assert counts[1] < 100


async def test_errors_come_before_the_first_delta(engine: AsyncEngine, gate: Gate) -> None:
    with pytest.raises(PromptTooLongError):
        await anext(engine.stream(request("a", [1] * 500)))
    gate.allow(2)
    stream = engine.stream(request("a", [1], max_tokens=100))
    await anext(stream)
    second = asyncio.create_task(collect(engine, "a"))
    await asyncio.sleep(0)
    gate.allow()
    with pytest.raises(InvalidParameterError, match="'a' is in use"):
        await second
    assert (await anext(stream)).finish_reason is None  # the first one goes on
    await stream.aclose()


async def test_closing_a_stream_aborts_within_one_step(engine: AsyncEngine, gate: Gate) -> None:
    gate.allow(1)
    stream = engine.stream(request("a", [1], max_tokens=100))
    await anext(stream)
    await stream.aclose()  # while the second step is under way, or before it begins
    gate.allow()
    stats = await settled(engine)
    assert stats.num_steps <= 2
    assert stats.finished["abort"] == 1


async def test_cancelling_a_task_aborts_its_request(engine: AsyncEngine, gate: Gate) -> None:
    gate.allow(1)
    task = asyncio.create_task(collect(engine, "a", max_tokens=100))
    while engine.stats().num_running == 0:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.allow()
    assert (await settled(engine)).finished["abort"] == 1


async def test_an_abort_from_elsewhere_ends_the_stream(engine: AsyncEngine, gate: Gate) -> None:
    gate.allow(1)
    stream = engine.stream(request("a", [1], max_tokens=100))
    await anext(stream)
    engine.abort("a")
    gate.allow()
    deltas: list[Delta] = [d async for d in stream]
    assert deltas[-1].finish_reason == "abort"


async def test_a_full_queue_refuses_at_once(engine: AsyncEngine, gate: Gate) -> None:
    gate.allow(0)
    tasks = [asyncio.create_task(collect(engine, str(i))) for i in range(3)]
    await asyncio.sleep(0.01)
    refused = 0
    for i in range(3, 9):
        tasks.append(asyncio.create_task(collect(engine, str(i))))
    await asyncio.sleep(0.01)
    gate.allow()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        refused += isinstance(result, QueueFullError)
        assert isinstance(result, QueueFullError | list)
    assert 1 <= refused <= 6
    await settled(engine)
    assert await collect(engine, "again", max_tokens=1) == [3]


async def test_a_failing_step_ends_the_stream_and_not_the_engine() -> None:
    def script(token: int, position: int) -> int:
        if token == 9:
            raise RuntimeError("torn")
        return token + 1

    with AsyncEngine(null_engine(script)) as engine:
        deltas = [d async for d in engine.stream(request("a", [7]))]
        assert (deltas[-1].finish_reason, deltas[-1].error) == ("error", "torn")
        assert await collect(engine, "b", max_tokens=2) == [3, 4]
        assert engine.is_alive


async def test_idle_takes_no_cpu(engine: AsyncEngine) -> None:
    await collect(engine, "a")
    for _ in range(10):  # others of this process may still be at something
        before = time.process_time()
        await asyncio.sleep(0.3)
        if time.process_time() - before < 0.03:
            return
    pytest.fail("it never rests")


async def test_closing_ends_streams_with_an_error(gate: Gate) -> None:
    engine = AsyncEngine(null_engine(gate))
    gate.allow(1)
    stream = engine.stream(request("a", [1], max_tokens=100))
    await anext(stream)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while engine.is_alive:
        await asyncio.sleep(0.001)
    gate.allow()
    with pytest.raises(EngineError, match="shut down"):
        async for _ in stream:
            pass
    closing.join()
    assert not engine.is_alive
    with pytest.raises(EngineError, match="closed"):
        await anext(engine.stream(request("b", [1])))
    with pytest.raises(EngineError, match="closed"):
        await engine.call(lambda e: e.stats())


async def test_a_dead_thread_is_told_to_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = null_engine()
    engine = AsyncEngine(inner)

    def broken() -> list[Delta]:
        raise MemoryError("gone")

    monkeypatch.setattr(inner, "step", broken)
    with pytest.raises(EngineError, match="gone"):
        await anext(engine.stream(request("a", [1])))
    assert not engine.is_alive
    with pytest.raises(EngineError, match="failed: gone"):
        await anext(engine.stream(request("b", [1])))
    engine.close()


def test_streams_of_several_event_loops() -> None:
    with AsyncEngine(null_engine()) as engine:
        answers: list[list[int]] = []

        def work(name: str) -> None:
            answers.append(asyncio.run(collect(engine, name, max_tokens=20)))

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [list(range(3, 23))] * 4

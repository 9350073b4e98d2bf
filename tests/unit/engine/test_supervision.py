"""Supervision without a process: hang detection, shared memory, backlog, resuming."""

from __future__ import annotations

import asyncio
import os
import re
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.decoding import SamplingParams
from octavo.decoding.grammar import Grammar
from octavo.engine import Collector, Delta, Request, RequestMetrics, RequestOutput
from octavo.engine.failures import error_of
from octavo.engine.heart import Doing, Heart, anonymous_file
from octavo.engine.live import Live
from octavo.engine.stall import PATIENCE, StallWatch, cpu_time_s
from octavo.engine.supervision import Supervision
from octavo.errors import DeadlineError, EngineError, InvalidParameterError, SlowReaderError
from tests.support.engines import byte_tokenizer, drain, null_engine, request


def test_a_stopped_engine_is_hung_after_the_limit() -> None:
    watch = StallWatch(10.0)
    assert not watch.look(0.0, True, 1, 5.0)
    assert not watch.look(9.9, True, 1, 5.0)
    assert watch.stalled_s(9.9) == pytest.approx(9.9)
    assert watch.look(10.0, True, 1, 5.0)


def test_an_engine_that_computes_is_given_longer() -> None:
    watch = StallWatch(10.0)
    hung = [watch.look(float(now), True, 1, float(now)) for now in range(int(10 * PATIENCE) + 1)]
    assert hung.index(True) == 10 * PATIENCE


def test_steps_and_idleness_are_no_stall() -> None:
    watch = StallWatch(10.0)
    for now in range(0, 100, 9):
        assert not watch.look(float(now), True, now, 0.0)
    watch.look(100.0, False, 7, 0.0)
    assert watch.stalled_s(1000.0) == 0
    assert not watch.look(1000.0, True, 7, 0.0)
    assert watch.look(1010.0, True, 7, 0.0)


def test_where_cpu_time_is_unknown_the_engine_gets_the_longer_limit() -> None:
    watch = StallWatch(1.0)
    hung = [watch.look(float(now), True, 1, None) for now in range(7)]
    assert hung.index(True) == PATIENCE


def test_cpu_time_of_this_process_and_of_none() -> None:
    used = cpu_time_s(os.getpid())
    assert used is None or used > 0
    assert cpu_time_s(2**22 + 1) is None


def test_a_heart_is_read_by_another() -> None:
    fd = anonymous_file()
    writer, reader = Heart(fd), Heart(fd)
    assert (reader.beats, reader.doing, reader.members) == (0, Doing.NOTHING, [])
    writer.begin(Doing.STEPPING, [3, 2**40])
    assert (reader.doing, reader.members) == (Doing.STEPPING, [3, 2**40])
    writer.rest()
    writer.beat(5, 500, 7, 9, 11)
    assert (reader.num_waiting, reader.num_waiting_tokens) == (5, 500)
    assert (reader.num_running, reader.num_steps, reader.taken, reader.beats) == (7, 9, 11, 1)
    assert reader.doing is Doing.NOTHING
    writer.begin(Doing.TAKING, range(10**5))
    assert reader.members[-1] == len(reader.members) - 1
    for heart in (writer, reader):
        heart.close()
    os.close(fd)


def delta(text: str, index: int = 0, reason: str | None = None) -> Delta:
    return Delta("r", index, text, [1], finish_reason=reason)  # type: ignore[arg-type]


def live(n: int = 1, max_backlog: int = 10**6) -> Live:
    return Live(Request("r", [1], SamplingParams(n=n)), 0, max_backlog)


async def test_a_reader_behind_gets_deltas_joined() -> None:
    stream = live(n=2)
    for i in range(100):
        stream.deliver([delta(f"{i},", 0), delta("x", 1)])
    stream.deliver([delta("end", 0, "stop")])
    found = await stream.take()
    assert len(found) < 20
    assert "".join(d.text for d in found if d.index == 0) == f"{','.join(map(str, range(100)))},end"
    assert sum(len(d.token_ids) for d in found) == 201
    assert [d.finish_reason for d in found if d.index == 0][-1] == "stop"


async def test_a_reader_far_behind_is_dropped() -> None:
    stream = live(max_backlog=10_000)
    for _ in range(1000):
        stream.deliver([delta("some text")])
    with pytest.raises(SlowReaderError, match=r"10,000 bytes"):
        await stream.take()
    assert stream.over


async def test_a_reader_that_keeps_up_is_never_dropped() -> None:
    stream = live(max_backlog=1000)
    for _ in range(1000):
        stream.deliver([delta("some text")])
        assert [d.text for d in await stream.take()] == ["some text"]


async def test_an_ended_sample_says_no_more() -> None:
    stream = live(n=2)
    stream.deliver([delta("a", 0), delta("b", 1)])
    stream.end(1)
    stream.deliver([delta("c", 0), delta("d", 1)])
    found = [(d.index, d.text, d.finish_reason) for d in await stream.take()]
    assert found == [(0, "a", None), (1, "b", None), (1, "", "stop"), (0, "c", None)]
    resumption = stream.resumed().resumption
    assert resumption is not None
    assert resumption.ended == [False, True]
    stream.deliver([delta("e", 0, "stop"), delta("f", 1, "length")])
    assert [d.text for d in await stream.take()] == ["e"]
    assert stream.over


async def test_fail_wakes_the_reader() -> None:
    stream = live()
    task = asyncio.ensure_future(stream.take())
    await asyncio.sleep(0)
    stream.fail(EngineError("gone"))
    with pytest.raises(EngineError, match="gone"):
        await task


async def test_a_taker_gets_what_comes_while_its_reader_waits() -> None:
    stream, taken, open_to = live(), list[str](), 2

    def taker(found: Delta) -> bool:
        if len(taken) == open_to:
            return False
        taken.append(found.text)
        return True

    assert not stream.passes(delta("nobody waits"))
    task = asyncio.ensure_future(stream.take(taker))
    await asyncio.sleep(0)
    assert [stream.passes(delta(text)) for text in "abc"] == [True, True, False]
    taken.clear()  # it would take more, but the reader has to have "c" first
    assert not stream.passes(delta("d"))
    stream.deliver([delta("c"), delta("d")])
    assert [d.text for d in await task] == ["c", "d"]
    assert taken == []
    resumption = stream.resumed().resumption
    assert resumption is not None
    assert resumption.outputs == [[1] * 4]


async def test_a_taker_gets_no_end_and_its_error_is_the_readers() -> None:
    def taker(found: Delta) -> bool:
        raise ValueError(found.text)

    stream = live()
    task = asyncio.ensure_future(stream.take(taker))
    await asyncio.sleep(0)
    assert not stream.passes(delta("the end", reason="stop"))
    assert stream.passes(delta("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await task
    assert stream.over


def test_bad_supervision_names_the_field() -> None:
    with pytest.raises(InvalidParameterError, match="hang_timeout_s"):
        Supervision(hang_timeout_s=0)
    with pytest.raises(InvalidParameterError, match="max_request_crashes"):
        Supervision(max_request_crashes=0)


Spec = tuple[int, int, int, bool, bool]
ALPHABET = "abcé🙂 "


def build(spec: Spec) -> Request:
    length, outputs, n, scored, stops = spec
    return request(
        "r",
        list(range(60, 60 + length)),
        max_tokens=outputs,
        min_tokens=min(3, outputs),
        n=n,
        logprobs=2,
        prompt_logprobs=1 if scored else None,
        temperature=0.9,
        repetition_penalty=1.3,
        frequency_penalty=0.3,
        stop=("\x61\x62", "d") if stops else (),
        seed=7,
    )


def engine():
    return null_engine(tokenizer=byte_tokenizer(), num_kv_blocks=200)


@cache
def undisturbed(spec: Spec) -> RequestOutput:
    return outputs_with_crashes(build(spec), ())


def outputs_with_crashes(wanted: Request, lives: tuple[int, ...]) -> RequestOutput:
    """The answer if engines die after so many steps with deltas, what they told being all that is
    known."""
    collector = Collector(wanted)
    stream = Live(wanted, 0, 10**9)
    for steps in (*lives, 10_000):
        runner = engine()
        runner.add_request(stream.resumed())
        while steps and runner.has_work():
            deltas = runner.step()
            if deltas:
                steps -= 1
                stream.deliver(deltas)
                for one in deltas:
                    collector.add(one)
        if stream.over:
            break
    assert collector.output.finished
    return collector.output


@settings(max_examples=60, deadline=None)
@given(
    spec=st.tuples(
        st.integers(1, 20), st.integers(1, 12), st.integers(1, 3), st.booleans(), st.booleans()
    ),
    lives=st.lists(st.integers(0, 8), max_size=4).map(tuple),
)
def test_an_answer_is_the_same_however_often_its_engine_dies(
    spec: Spec, lives: tuple[int, ...]
) -> None:
    found, wanted = outputs_with_crashes(build(spec), lives), undisturbed(spec)
    assert found.outputs == wanted.outputs
    assert found.prompt_logprobs == wanted.prompt_logprobs
    assert found.num_cached_tokens == wanted.num_cached_tokens
    assert isinstance(found.metrics, RequestMetrics)
    assert found.metrics.first_token_s is not None


def test_the_engine_itself_ends_what_misses_a_deadline() -> None:
    runner = null_engine(max_num_seqs=1)
    now = time.monotonic()
    late, queued, timely = (request(name, [1, 2]) for name in ("late", "queued", "timely"))
    late.deadline_s, queued.ttft_deadline_s = now + 0.05, now + 0.05
    timely.ttft_deadline_s = timely.deadline_s = now + 60
    for one in (late, queued, timely):
        runner.add_request(one)
    first = runner.step()
    assert [d.request_id for d in first] == ["late"]
    time.sleep(0.06)
    ended = {d.request_id: error_of(d) for d in runner.step() if d.finish_reason == "error"}
    assert all(isinstance(error, DeadlineError) for error in ended.values())
    assert [(name, getattr(error, "queued", None)) for name, error in sorted(ended.items())] == [
        ("late", False),
        ("queued", True),
    ]
    assert {d.request_id for d in drain(runner)} == {"timely"}


@pytest.mark.parametrize("lives", [(1,), (3, 5), (7, 1, 1), (2, 9)])
def test_a_grammar_goes_on_where_it_was(lives: tuple[int, ...]) -> None:
    pattern = "([a-c]{2}-){3,6}[x-z]+!"

    def wanted() -> Request:
        how = {"grammar": Grammar("regex", pattern), "n": 2, "seed": 3}
        return request("r", [60, 61], max_tokens=40, temperature=1.2, **how)

    whole, found = outputs_with_crashes(wanted(), ()), outputs_with_crashes(wanted(), lives)
    assert found.outputs == whole.outputs
    assert all(re.fullmatch(pattern, output.text) for output in found.outputs)

"""What comes to a ZeroMQ socket reaches its function: all of it, in order, whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from octavo.engine.socket_reader import SocketReader

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends without bounds."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        for end in (one, two):
            end.set_hwm(0)
            end.setsockopt(zmq.LINGER, 0)
        one.bind("inproc://pair")
        two.connect("inproc://pair")
        yield one, two


async def until(found: list[bytes], count: int) -> None:
    async with asyncio.timeout(20):
        while len(found) < count:
            await asyncio.sleep(0.001)


async def test_everything_comes_in_order(pair: Pair) -> None:
    """Before it reads, more than one round at once, and a little now and then."""
    here, there = pair
    found: list[bytes] = []
    there.send(b"0")
    reader = SocketReader(here, found.append)
    for number in range(1, 500):
        there.send(b"%d" % number)
    await until(found, 500)
    for number in range(500, 520):
        there.send(b"%d" % number)
        await until(found, number + 1)
    assert found == [b"%d" % number for number in range(520)]
    reader.close()


async def test_others_of_the_loop_have_their_turn(pair: Pair) -> None:
    here, there = pair
    found: list[bytes] = []
    for _ in range(500):
        there.send(b"x")
    reader = SocketReader(here, found.append)
    seen = []
    while len(found) < 500:
        await asyncio.sleep(0)
        seen.append(len(found))
    assert len(set(seen)) > 3
    reader.close()


async def test_what_was_noticed_while_something_was_sent_is_read(pair: Pair) -> None:
    """Sending takes the descriptor's word of new messages away."""
    here, there = pair
    found: list[bytes] = []
    reader = SocketReader(here, found.append)
    await asyncio.sleep(0)
    for number in range(200):
        there.send(b"in")
        here.send(b"out")
        reader.look_again()
        await until(found, number + 1)
    reader.close()


async def test_a_failure_is_told_and_ends_the_reading(pair: Pair) -> None:
    here, there = pair
    found: list[bytes] = []

    def take(data: bytes) -> None:
        found.append(data)
        if data == b"bad":
            raise ValueError("no")

    reader = SocketReader(here, take)
    for data in (b"good", b"bad", b"late"):
        there.send(data)
    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match="no"):
            await reader.failed
    there.send(b"later")
    await asyncio.sleep(0)
    assert found == [b"good", b"bad"]
    reader.close()

"""The load client's HTTP, against answers written by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from octavo.bench.load.client import Target, ask
from octavo.bench.load.prompts import Prompt
from octavo.bench.load.results import RequestRecord
from octavo.bench.load.wire import MAX_HEAD, AnswerError, Headers, Wire

EVENT = b'data: {"choices": [{"text": "x"}]}\n\n'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Heard:
    """A Reader that keeps all."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, dict[str, str](), b""

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, dict(headers)

    def data(self, data: bytes) -> None:
        self.body += data


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def answering(*answers: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(URL, requests heard) of a server that gives each connection one of these answers, in small
    pieces, and closes it; where the answer is None, it says nothing."""
    heard: list[bytes] = []
    tasks = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"Content-Length: (\d+)", head)
        heard.append(head + await reader.readexactly(int(found[1]) if found else 0))
        answer = answers[len(heard) - 1]
        with suppress(ConnectionError):
            if answer is None:
                await reader.read()
                answer = b""
            size = max(7, len(answer) // 50)
            for start in range(0, len(answer), size):
                writer.write(answer[start : start + size])
                await writer.drain()
                await asyncio.sleep(0)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
        await asyncio.gather(*tasks)


async def send(url: str, method: str = "GET", headers: Headers | None = None) -> Heard:
    heard = Heard()
    await Wire().send(method, url, headers or {}, b"{}", heard)
    return heard


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + chunk(b"some ") + chunk(b"text") + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome text",
        b"HTTP/1.0 200 OK\r\n\r\nsome text",  # ends with the connection
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome text",
    ],
)
async def test_answers_are_read_whole(answer: bytes) -> None:
    async with answering(answer) as (url, _):
        found = await send(f"{url}/x")
    assert (found.status, found.body) == (200, b"some text")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        CHUNKED + chunk(b"some "),
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (2 * MAX_HEAD),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    async with answering(answer) as (url, _):
        with pytest.raises(AnswerError):
            await send(url)


async def test_a_request_says_what_it_should() -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, heard):
        port = url.rpartition(":")[2]
        found = await send(f"http://me:p%40ss@127.0.0.1:{port}/a b?c=d", "POST", {"X-Y": "z"})
    assert found.status == 204
    lines = heard[0].split(b"\r\n")
    assert lines[0] == b"POST /a%20b?c=d HTTP/1.1"
    assert {b"X-Y: z", b"Content-Length: 2", f"Host: 127.0.0.1:{port}".encode()} < {*lines}
    assert b"Authorization: Basic bWU6cEBzcw==" in lines
    assert lines[-1] == b"{}"


async def test_redirects_are_followed_and_keys_stay_with_their_server() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!") as (other, there):
        moved = f"HTTP/1.1 307 -\r\nLocation: {other}/y\r\nContent-Length: 1\r\n\r\n?".encode()
        async with answering(moved) as (url, here):
            found = await send(url, "POST", {"Authorization": "Bearer k"})
    assert found.body == b"!"
    assert b"Bearer k" in here[0]
    assert b"Bearer k" not in there[0]
    assert there[0].startswith(b"POST /y ")


async def test_redirects_without_end_are_an_error() -> None:
    moved = b"HTTP/1.1 302 -\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
    async with answering(*[moved] * 20) as (url, heard):
        with pytest.raises(AnswerError, match="redirects"):
            await send(url)
    assert len(heard) == 10


@pytest.mark.parametrize("url", ["ftp://x/", "x", "http:///y"])
async def test_bad_addresses_and_headers_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        await send(url)
    with pytest.raises(ValueError, match="line break"):
        await send("http://127.0.0.1:9", headers={"X": "a\r\nY: b"})


async def record_of(answer: bytes, timeout_s: float = 5.0) -> RequestRecord:
    async with answering(answer) as (url, _):
        target = Target(url, "m", timeout_s=timeout_s)
        return await ask(Wire(), target, Prompt("p", 4), lambda: 1.5, 0.5)


async def test_a_record_has_the_moments_and_counts_of_an_answer() -> None:
    usage = b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 5}}\n\n'
    events = chunk(EVENT) + chunk(EVENT + EVENT) + chunk(usage + b"data: [DONE]\n\n")
    record = await record_of(CHUNKED + events + b"0\r\n\r\n")
    assert (record.piece_times_s, record.sent_s, record.end_s) == ([1.5] * 3, 0.5, 1.5)
    assert (record.prompt_tokens, record.output_tokens, record.error) == (3, 5, None)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (CHUNKED + chunk(EVENT) + b"0\r\n\r\n", "cut off"),
        (CHUNKED + chunk(EVENT), "AnswerError"),
        (CHUNKED + chunk(b"data: x\n\ndata: [DONE]\n\n") + b"0\r\n\r\n", "malformed event"),
        (CHUNKED + chunk(b"data: " + b"x" * 2**21) + b"0\r\n\r\n", "malformed event"),
        (b"HTTP/1.1 429 -\r\nRetry-After: 1\r\nContent-Length: 1\r\n\r\n!", "HTTP 429"),
    ],
)
async def test_a_record_says_what_went_wrong(answer: bytes, error: str) -> None:
    record = await record_of(answer)
    assert record.error == error
    assert record.retry_after == (error == "HTTP 429")


async def test_nobody_there_and_no_answer_in_time_are_in_the_record() -> None:
    nobody = Target("http://127.0.0.1:9", "m")
    assert (await ask(Wire(), nobody, Prompt("p", 4), lambda: 0.0, 0.0)).error is not None

    async with answering(None) as (url, _):
        late = Target(url, "m", timeout_s=0.05)
        assert (await ask(Wire(), late, Prompt("p", 4), lambda: 0.0, 0.0)).error == "timeout"

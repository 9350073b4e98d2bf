"""Clients that are slow on purpose or too many. Limits here are fractions of a second."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from octavo.records import replace
from octavo.serving import ServerOptions
from octavo.serving.guard import RESERVE
from octavo.serving.options import ClientLimits
from tests.serving.live_server import LiveServer, live_server, wait_until

LIMITS = ClientLimits(
    header_timeout_s=0.4,
    body_timeout_s=0.4,
    min_body_bytes_per_s=100,
    write_timeout_s=0.5,
    max_connections=8,
)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def strict(tiny_model: Path) -> Iterator[LiveServer]:
    """A server with little patience."""
    options = ServerOptions(served_model_names=("tiny",), limits=LIMITS)
    with live_server(tiny_model, server=options) as live:
        yield live


def connect(server: LiveServer) -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    connection.settimeout(10)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    answer = b""
    try:
        while data := connection.recv(65536):
            answer += data
    except ConnectionResetError:
        pass
    return answer


def trickle(connection: socket.socket) -> None:
    """Send a byte now and then until the server has had enough; fails after ten seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            connection.sendall(b" ")
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail("the connection is still open")


def cuts(server: LiveServer, reason: str) -> float:
    text = server.http.get("/metrics").text
    name = f'octavo:http_connections_cut_total{{reason="{reason}"}} '
    return next((float(line.split()[1]) for line in text.splitlines() if name in line), 0.0)


def test_a_silent_connection_is_closed(strict: LiveServer) -> None:
    before = cuts(strict, "header")
    with connect(strict) as connection:
        assert read_all(connection) == b""
    assert cuts(strict, "header") == before + 1


def test_a_head_that_trickles_in_ends_with_408(strict: LiveServer) -> None:
    with connect(strict) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX: y")
        trickle(connection)
        assert read_all(connection)[:12] in (b"HTTP/1.1 408", b"")


def test_a_second_head_on_a_kept_connection_has_its_own_time(strict: LiveServer) -> None:
    with connect(strict) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(4096)
            assert b"200 OK" in answer
            time.sleep(0.6)  # idle: another rule's business, five seconds
        connection.sendall(b"GET /hea")
        assert read_all(connection).startswith(b"HTTP/1.1 408")


def test_a_body_that_trickles_in_is_cut(strict: LiveServer) -> None:
    before = cuts(strict, "body")
    with connect(strict) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        trickle(connection)
        assert read_all(connection)[:12] in (b"HTTP/1.1 408", b"")
    assert cuts(strict, "body") == before + 1


def test_a_slow_but_honest_body_is_served(tiny_model: Path) -> None:
    """It comes in for longer than one window, and always something."""
    limits = replace(LIMITS, body_timeout_s=2.0, min_body_bytes_per_s=5)
    options = ServerOptions(served_model_names=("tiny",), limits=limits)
    body = b'{"model": "tiny", "prompt": "' + b"a" * 200 + b'", "max_tokens": 1}'
    with live_server(tiny_model, server=options) as server, connect(server) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 10):
            connection.sendall(body[start : start + 10])
            time.sleep(0.1)
        assert b"200 OK" in read_all(connection)


def test_a_body_nobody_wants_may_not_trickle_either(strict: LiveServer) -> None:
    """The answer is out already: 404."""
    with connect(strict) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert b"404" in connection.recv(4096)
        trickle(connection)


def test_a_long_answer_is_not_mistaken_for_a_slow_client(tiny_model: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), limits=LIMITS)
    with live_server(tiny_model, backend="slow", server=options) as server:
        answer = server.complete(max_tokens=200, ignore_eos=True)  # a second
        assert answer.json()["usage"]["completion_tokens"] == 200


def test_an_answer_nobody_reads_is_given_up(strict: LiveServer) -> None:
    before = cuts(strict, "write")
    wanted = {"max_tokens": 4000, "ignore_eos": True, "stream": True, "logprobs": 5, "n": 6}
    body = json.dumps({"model": "tiny", "prompt": "a", **wanted}).encode()  # 10 MB
    with connect(strict) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        end = time.monotonic() + 30
        while cuts(strict, "write") == before:
            assert time.monotonic() < end
            time.sleep(0.05)
    assert strict.wait_idle()["octavo:kv_blocks_used"] == 0


@pytest.fixture
def crowded(tiny_model: Path) -> Iterator[LiveServer]:
    """A server for few connections."""
    limits = ClientLimits(max_connections=LIMITS.max_connections)
    options = ServerOptions(served_model_names=("tiny",), limits=limits)
    with live_server(tiny_model, server=options) as live:
        yield live


def test_too_many_connections_are_refused_but_probes_are_heard(crowded: LiveServer) -> None:
    held = [connect(crowded) for _ in range(LIMITS.max_connections)]
    try:
        for connection in held:  # they are clients in the middle of a body
            connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        with connect(crowded) as one_more:
            one_more.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = read_all(one_more)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1" in answer.lower()
            assert b"too_many_connections" in answer
        with connect(crowded) as probe:
            probe.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in read_all(probe)
        crowd = [connect(crowded) for _ in range(RESERVE + 1)]
        with connect(crowded) as beyond:
            assert read_all(beyond).startswith(b"HTTP/1.1 503 Service Unavailable")
        for connection in crowd:
            connection.close()
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: crowded.http.get("/v1/models").status_code == 200)


def test_a_head_without_end_is_refused(strict: LiveServer) -> None:
    with connect(strict) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000)
        assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")

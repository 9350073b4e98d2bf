"""A client that goes away stops its work and frees its blocks."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.serving.live_server import LiveServer

LONG = {
    "model": "tiny",
    "prompt": "x" * 100,
    "temperature": 0,
    "ignore_eos": True,
    "max_tokens": 3000,
}


def send(server: LiveServer, path: str = "/v1/completions", **body: Any) -> socket.socket:
    """A connection on which the request has been sent and nothing read."""
    return send_body(server, path, {**LONG, **body})


def send_body(server: LiveServer, path: str, body: dict[str, Any]) -> socket.socket:
    """The same for any body."""
    raw = json.dumps(body).encode()
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw)
    return connection


def wait_running(server: LiveServer, count: int) -> None:
    end = time.monotonic() + 30
    while server.metrics().get("octavo:num_requests_running") != count:
        assert time.monotonic() < end, server.metrics()
        time.sleep(0.01)


@pytest.mark.parametrize("body", [{"stream": True}, {"stream": False}, {"stream": True, "n": 4}])
def test_blocks_come_back(slow_server: LiveServer, body: dict[str, Any]) -> None:
    idle = slow_server.metrics()
    connections = [send(slow_server, **body) for _ in range(3)]
    wait_running(slow_server, 3 * body.get("n", 1))
    assert slow_server.metrics()["octavo:kv_blocks_used"] > 0
    for connection in connections:
        connection.close()
    values = slow_server.wait_idle(10)  # LONG needs 15 s
    assert values["octavo:kv_blocks_used"] == 0
    assert values["octavo:kv_blocks_free"] == idle["octavo:kv_blocks_free"]
    ended = values["octavo:request_success_total"] - idle["octavo:request_success_total"]
    assert ended == 3 * body.get("n", 1)  # all "abort"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/api/chat"])
def test_every_protocol_gives_blocks_back(slow_server: LiveServer, path: str, stream: bool) -> None:
    said = [{"role": "user", "content": "say:" + "x" * 2000}]
    body: dict[str, Any] = {"model": "tiny", "stream": stream}
    body |= {"input": said} if path == "/v1/responses" else {"messages": said}
    body |= {"max_tokens": 2000} if path == "/v1/messages" else {}
    connections = [send_body(slow_server, path, body) for _ in range(3)]
    wait_running(slow_server, 3)
    for connection in connections:
        connection.close()
    assert slow_server.wait_idle(8)["octavo:kv_blocks_used"] == 0  # whole, they need 10 s


def test_waiting_requests_leave_the_queue(slow_server: LiveServer) -> None:
    """More than the engine runs at once; those that wait are dropped as well."""
    connections = [send(slow_server, stream=bool(i % 2)) for i in range(80)]
    wait_running(slow_server, 64)
    assert slow_server.metrics()["octavo:num_requests_waiting"] == 16
    for connection in connections:
        connection.close()
    assert slow_server.wait_idle()["octavo:kv_blocks_used"] == 0


def test_others_are_not_disturbed(slow_server: LiveServer) -> None:
    """Streams beside one that breaks off get exactly their text."""
    gone = send(slow_server, stream=True)
    wait_running(slow_server, 1)
    stay = send(slow_server, stream=False, max_tokens=60)
    wait_running(slow_server, 2)
    gone.close()
    stay.settimeout(20)
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
        answer += stay.recv(65536)
    stay.close()
    text = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["text"]
    assert text.startswith("yz{|}~")
    assert "ABCDEFGHIJ" in text


def test_a_reader_that_never_reads_holds_up_nobody(slow_server: LiveServer) -> None:
    deaf = send(slow_server, stream=True)
    wait_running(slow_server, 1)
    answer = slow_server.complete(max_tokens=5)
    assert answer.status_code == 200
    assert slow_server.metrics()["octavo:num_requests_running"] == 1  # LONG takes 15 s
    deaf.close()
    slow_server.wait_idle()


def test_breaking_off_within_the_body(server: LiveServer) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"
        )
    answer = server.complete(max_tokens=1)
    assert answer.status_code == 200

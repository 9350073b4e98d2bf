"""More than the server can do: what is refused, when, how, and when to come again."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server, wait_until
from tests.serving.test_server_process import program

LONG = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}
CHAT = [{"role": "user", "content": "x"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": MODEL, "prompt": "x", **LONG},
    "/v1/chat/completions": {"model": MODEL, "messages": CHAT, **LONG},
    "/v1/messages": {"model": MODEL, "messages": CHAT, "max_tokens": 3000},
    "/v1/responses": {"model": MODEL, "input": "x", "max_output_tokens": 3000},
    "/api/chat": {"model": MODEL, "messages": CHAT, "stream": False},
}


@contextmanager
def one_row(model: Path, **engine: Any) -> Iterator[LiveServer]:
    """A server that runs one request at a time, slowly."""
    with live_server(model, backend="slow", max_num_seqs=1, **engine) as server:
        yield server


@contextmanager
def occupied(server: LiveServer, **more: Any) -> Iterator[None]:
    """While a stream runs."""
    body = {"model": MODEL, "prompt": "x", "stream": True, **LONG, **more}
    with server.http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()  # which ends the stream when it is dropped
        next(lines)
        yield
        del lines


def message_of(answer: httpx.Response) -> str:
    """What the error says, in any protocol."""
    error = answer.json()["error"]
    return str(error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize("path", ROUTES)
def test_a_deadline_in_the_batch_is_504(slow_server: LiveServer, path: str) -> None:
    for body, headers in (({"deadline": 0.15}, {}), ({}, {"X-Octavo-Deadline": "0.15"})):
        answer = slow_server.http.post(path, json={**ROUTES[path], **body}, headers=headers)
        if answer.status_code != 200:  # the script of a chat may end before
            assert answer.status_code == 504
            assert "missed its deadline while it ran" in message_of(answer)
        assert path.startswith(("/v1/messages", "/api", "/v1/resp")) or answer.status_code == 504
    assert slow_server.wait_idle()["octavo:kv_blocks_used"] == 0


def test_a_deadline_in_the_queue_is_408(tiny_model: Path) -> None:
    terms: list[tuple[dict[str, float], dict[str, str]]] = [
        ({"ttft_deadline": 0.2}, {}),
        ({}, {"X-Octavo-TTFT-Deadline": "0.2"}),
        ({"deadline": 0.2}, {}),
    ]
    with one_row(tiny_model) as server, occupied(server):
        for path, body in ROUTES.items():
            for fields, headers in terms:
                answer = server.http.post(path, json={**body, **fields}, headers=headers)
                assert answer.status_code == 408
                assert "while it waited in the queue" in message_of(answer)


def test_a_deadline_after_the_first_event_is_an_error_event(slow_server: LiveServer) -> None:
    body = {**ROUTES["/v1/chat/completions"], "stream": True, "deadline": 0.2}
    answer = slow_server.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    events = [line for line in answer.text.split("\n\n") if line]
    assert json.loads(events[-2][6:])["error"]["code"] == "deadline_exceeded"
    assert events[-1] == "data: [DONE]"
    assert slow_server.wait_idle()["octavo:kv_blocks_used"] == 0


def test_a_deadline_that_is_met_changes_nothing(server: LiveServer) -> None:
    plain = server.complete("a", max_tokens=5, temperature=0).json()["choices"]
    timed = server.complete("a", max_tokens=5, temperature=0, deadline=20, ttft_deadline=20)
    assert timed.json()["choices"] == plain


@pytest.mark.parametrize("value", [0, -1, "1", True, 1e300, [1]])
def test_a_bad_deadline_names_the_field(server: LiveServer, value: object) -> None:
    for name in ("deadline", "ttft_deadline"):
        answer = server.complete(**{name: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-3", "0"])
def test_a_bad_deadline_header_is_named(server: LiveServer, value: str) -> None:
    body = {"model": MODEL, "prompt": "a"}
    headers = {"X-Octavo-Deadline": value}
    answer = server.http.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Octavo-Deadline"


def test_a_hung_engine_keeps_no_deadline_from_ending(tiny_model: Path) -> None:
    with live_server(tiny_model, backend="slow") as server:
        body = {**ROUTES["/v1/completions"], "deadline": 2}
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(server.http.post, "/v1/completions", json=body)
            wait_until(lambda: server.client.num_live)
            with server.engine_stopped():
                assert job.result().status_code == 504
        assert server.client.num_restarts == 0
        server.wait_idle()


def test_a_full_queue_says_when_to_come_again(tiny_model: Path) -> None:
    """429 with a Retry-After from the rate at which the queue drains; /health/ready says 503."""
    body = {"model": MODEL, "prompt": "x", "max_tokens": 60, "ignore_eos": True}
    with (
        live_server(tiny_model, backend="slow", max_num_seqs=2, max_queue=20) as server,
        ThreadPoolExecutor(40) as pool,
    ):
        with server.engine_stopped():
            jobs = [pool.submit(server.http.post, "/v1/completions", json=body) for _ in range(40)]
            wait_until(lambda: sum(job.done() for job in jobs) == 18)  # two rows, 20 may wait
            ready = server.http.get("/health/ready")
        answers = [job.result() for job in jobs]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (ready.status_code, ready.json()["status"]) == (503, "full")
        assert int(ready.headers["retry-after"]) >= 1
        assert len(refused) == 18
        assert sum(answer.status_code == 200 for answer in answers) == 22
        for answer in refused:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["error"]["code"] == "queue_full"
        assert server.http.get("/health/ready").status_code == 200


def test_the_queue_is_bounded_in_tokens(tiny_model: Path) -> None:
    with one_row(tiny_model, max_queued_tokens=500) as server, ThreadPoolExecutor(1) as pool:

        def send() -> int:
            body = {"model": MODEL, "prompt": "x" * 300, "max_tokens": 1}
            return server.http.post("/v1/completions", json=body).status_code

        with occupied(server):
            first = pool.submit(send)
            wait_until(lambda: server.client.queue().num_tokens >= 300)
            assert [send(), send()] == [429, 429]
        assert first.result() == 200


def test_one_tenants_flood_leaves_room_for_others(tiny_model: Path) -> None:
    with one_row(tiny_model, max_queue=4) as server, ThreadPoolExecutor(12) as pool:

        def send(user: str, **more: Any) -> int:
            body = {"model": MODEL, "prompt": "x", "max_tokens": 1, "user": user, **more}
            return server.http.post("/v1/completions", json=body).status_code

        with occupied(server, user="flood"):
            flood = [pool.submit(send, "flood") for _ in range(10)]
            wait_until(lambda: sum(job.done() for job in flood) == 6)
            assert send("light", deadline=0.5) == 408  # let in, though one row is not shared
        assert sorted(job.result() for job in flood) == [200] * 4 + [429] * 6


def test_sigterm_refuses_new_work_and_finishes_the_old(tiny_model: Path) -> None:
    with program(tiny_model, "slow") as server:
        server.wait_status(200)
        body = {"model": MODEL, "prompt": "x", "max_tokens": 400, "ignore_eos": True}
        with server.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            assert server.wait_draining().status_code == 503
            refused = server.http.post("/v1/completions", json=body)
            assert refused.status_code == 503
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert "about to stop" in refused.json()["error"]["message"]
            assert server.http.get("/health/live").status_code == 200
            rest = list(lines)
        assert rest[-2] == "data: [DONE]"
        assert '"length"' in rest[-4]
        server.process.wait(20)


def test_draining_has_a_limit_and_a_second_signal_ends_it(tiny_model: Path) -> None:
    body = {"model": MODEL, "prompt": "x", "stream": True, **LONG}
    for signals, drain_s in ((1, 2), (2, 600)):
        with program(tiny_model, "slow", drain_s=drain_s) as server:
            server.wait_status(200)
            with server.http.stream("POST", "/v1/completions", json=body) as answer:
                lines = answer.iter_lines()
                next(lines)
                began = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                if signals == 2:
                    server.wait_draining()
                    server.process.send_signal(signal.SIGTERM)
                try:
                    rest = list(lines)
                except httpx.RemoteProtocolError:
                    assert signals == 2
                else:
                    assert "shut down" in rest[-4]
            server.process.wait(20)  # the stream alone takes 15 s
            assert signals == 2 or time.monotonic() - began >= drain_s


def test_tenants_are_told_apart_by_their_keys(tiny_model: Path) -> None:
    """With one key `user` counts, with several the key does: a client cannot be many tenants."""
    for keys, found in ((("one",), {"u1", "u2"}), (("one", "two"), {"key-7692c3ad"})):
        options = ServerOptions(served_model_names=(MODEL,), api_keys=keys)
        with live_server(tiny_model, backend="slow", server=options) as server:
            headers = {"Authorization": "Bearer one"}
            body = {"model": MODEL, "prompt": "x", "max_tokens": 100, "ignore_eos": True}
            with ThreadPoolExecutor(2) as pool, server.engine_stopped():
                jobs = [
                    pool.submit(
                        server.http.post,
                        "/v1/completions",
                        json={**body, "user": user},
                        headers=headers,
                    )
                    for user in ("u1", "u2")
                ]
                wait_until(lambda: server.client.num_live == 2)
                live = list(server.client._inflight._live.values())
                assert {one.request.tenant for one in live} == found
            assert all(job.result().status_code == 200 for job in jobs)

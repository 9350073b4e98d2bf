"""More than the server can do: what is refused, when, how, and when to come again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import MODEL, LiveServer, live_server
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
        began = time.monotonic()
        answer = slow_server.http.post(path, json={**ROUTES[path], **body}, headers=headers)
        if answer.status_code != 200:  # the script of a chat may end before
            assert answer.status_code == 504
            assert "missed its deadline while it ran" in message_of(answer)
            assert 0.1 < time.monotonic() - began < 3
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
        body = {**ROUTES["/v1/completions"], "deadline": 0.5}
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(server.http.post, "/v1/completions", json=body)
            time.sleep(0.2)
            os.kill(server.client.pid, signal.SIGSTOP)
            began = time.monotonic()
            assert job.result().status_code == 504
            assert time.monotonic() - began < 2
        os.kill(server.client.pid, signal.SIGCONT)
        server.wait_idle()


def test_a_full_queue_says_when_to_come_again(tiny_model: Path) -> None:
    """429 with a Retry-After from the rate at which the queue drains; /health/ready says 503."""
    body = {"model": MODEL, "prompt": "x", "max_tokens": 60, "ignore_eos": True}
    with (
        live_server(tiny_model, backend="slow", max_num_seqs=2, max_queue=20) as server,
        ThreadPoolExecutor(40) as pool,
    ):
        jobs = [pool.submit(server.http.post, "/v1/completions", json=body) for _ in range(40)]
        while server.client.full_for_s is None:
            time.sleep(0.001)
        ready = server.http.get("/health/ready")
        answers = [job.result() for job in jobs]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (ready.status_code, ready.json()["status"]) == (503, "full")
        assert int(ready.headers["retry-after"]) >= 1
        assert len(refused) + sum(answer.status_code == 200 for answer in answers) == 40
        for answer in refused:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["error"]["code"] == "queue_full"
        assert server.http.get("/health/ready").status_code == 200


def test_the_queue_is_bounded_in_tokens(tiny_model: Path) -> None:
    with one_row(tiny_model, max_queued_tokens=500) as server, occupied(server):
        statuses: list[int] = []

        def send(length: int) -> None:
            body = {"model": MODEL, "prompt": "x" * length, "max_tokens": 1, "deadline": 1.5}
            statuses.append(server.http.post("/v1/completions", json=body).status_code)

        threads = [threading.Thread(target=send, args=(300,)) for _ in range(3)]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        assert statuses == [429, 429]
        for thread in threads:
            thread.join()
        assert statuses == [429, 429, 408]


def test_one_tenants_flood_leaves_room_for_others(tiny_model: Path) -> None:
    with (
        one_row(tiny_model, max_queue=4) as server,
        occupied(server, user="flood"),
        ThreadPoolExecutor(12) as pool,
    ):

        def send(user: str) -> int:
            body = {"model": MODEL, "prompt": "x", "max_tokens": 1, "user": user, "deadline": 1}
            return server.http.post("/v1/completions", json=body).status_code

        flood = [pool.submit(send, "flood") for _ in range(10)]
        time.sleep(0.4)
        assert pool.submit(send, "light").result() == 408  # let in, though one row is not shared
        assert sorted(job.result() for job in flood) == [408] * 4 + [429] * 6


def test_sigterm_refuses_new_work_and_finishes_the_old(tiny_model: Path) -> None:
    with program(tiny_model, "slow") as server:
        server.wait_status(200)
        body = {"model": MODEL, "prompt": "x", "max_tokens": 200, "ignore_eos": True}
        with server.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            refused = server.http.post("/v1/completions", json=body)
            assert refused.status_code == 503
            assert 1 <= int(refused.headers["retry-after"]) <= 3
            assert "about to stop" in refused.json()["error"]["message"]
            ready = server.http.get("/health/ready")
            assert (ready.status_code, ready.json()["status"]) == (503, "draining")
            assert server.http.get("/health/live").status_code == 200
            rest = list(lines)
        assert rest[-2] == "data: [DONE]"
        assert '"length"' in rest[-4]
        server.process.wait(10)


def test_draining_has_a_limit_and_a_second_signal_ends_it(tiny_model: Path) -> None:
    body = {"model": MODEL, "prompt": "x", "stream": True, **LONG}
    for signals, least_s, most_s in ((1, 2.5, 8.0), (2, 0.0, 2.5)):
        with program(tiny_model, "slow") as server:
            server.wait_status(200)
            with server.http.stream("POST", "/v1/completions", json=body) as answer:
                lines = answer.iter_lines()
                next(lines)
                began = time.monotonic()
                for _ in range(signals):
                    server.process.send_signal(signal.SIGTERM)
                    time.sleep(0.2)
                try:
                    rest = list(lines)
                except httpx.RemoteProtocolError:
                    assert signals == 2
                else:
                    assert "shut down" in rest[-4]
            server.process.wait(10)
            assert least_s <= time.monotonic() - began < most_s


def test_tenants_are_told_apart_by_their_keys(tiny_model: Path) -> None:
    """With one key `user` counts, with several the key does: a client cannot be many tenants."""
    for keys, found in ((("one",), {"u1", "u2"}), (("one", "two"), {"key-7692c3ad"})):
        options = ServerOptions(served_model_names=(MODEL,), api_keys=keys)
        with live_server(tiny_model, backend="slow", server=options) as server:
            headers = {"Authorization": "Bearer one"}
            body = {"model": MODEL, "prompt": "x", "max_tokens": 100, "ignore_eos": True}
            with ThreadPoolExecutor(2) as pool:
                jobs = [
                    pool.submit(
                        server.http.post,
                        "/v1/completions",
                        json={**body, "user": user},
                        headers=headers,
                    )
                    for user in ("u1", "u2")
                ]
                time.sleep(0.2)
                live = list(server.client._inflight._live.values())
                assert {one.request.tenant for one in live} == found
                assert all(job.result().status_code == 200 for job in jobs)

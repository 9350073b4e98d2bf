"""Request ids, log lines, timings and HTTP metrics of requests, however they end."""

from __future__ import annotations

import json
import logging
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from octavo.serving import ServerOptions
from tests.serving.live_server import LiveServer, live_server

SECRET = "a very private prompt"


def request_line(caplog: pytest.LogCaptureFixture, request_id: str) -> dict[str, object]:
    """The fields of a request's log line; written when the answer is over, perhaps after the
    client has read it."""
    end = time.monotonic() + 20
    while True:
        for record in list(caplog.records):
            fields = getattr(record, "fields", {})
            if record.name == "octavo.request" and fields.get("request_id") == request_id:
                return {**fields, "message": record.getMessage()}
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "octavo.request")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/health", "/nowhere"])
def test_every_answer_has_an_id(server: LiveServer, path: str) -> None:
    made = server.http.get(path).headers["x-request-id"]
    assert len(made) == 32
    assert server.http.get(path).headers["x-request-id"] != made
    given = server.http.get(path, headers={"X-Request-Id": "trace:42/a.b_c~d=e@f+g-h"})
    assert given.headers["x-request-id"] == "trace:42/a.b_c~d=e@f+g-h"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, 'a"b', "a;b", "naïve".encode(), "a{}"])
def test_an_id_that_could_harm_is_refused(server: LiveServer, bad: str | bytes) -> None:
    answer = server.http.get("/v1/models", headers={"X-Request-Id": bad})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Request-Id"
    assert answer.json()["error"]["code"] == "invalid_request_id"
    assert len(answer.headers["x-request-id"]) == 32


def test_a_finished_request_is_one_line_without_its_text(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"X-Request-Id": "line-1"}
    body = {"model": "tiny", "prompt": SECRET, "max_tokens": 4, "n": 2, "temperature": 0}
    answer = server.http.post("/v1/completions", json=body, headers=headers)
    line = request_line(caplog, "line-1")
    assert line["message"] == "POST /v1/completions 200"
    assert (line["status"], line["model"], line["client"]) == (200, "tiny", "127.0.0.1")
    assert (line["prompt_tokens"], line["output_tokens"]) == (len(SECRET), 8)
    assert line["finish_reasons"] == ["length", "length"]
    assert line["engine_request_id"] == answer.json()["id"]
    parts = [line[name] for name in ("queue_s", "prefill_s", "decode_s")]
    assert sum(parts) <= line["duration_s"]  # type: ignore[arg-type]
    everything = json.dumps([r.__dict__ for r in caplog.records], default=str)
    assert SECRET not in everything
    assert answer.json()["choices"][0]["text"] not in everything
    lines = [r for r in caplog.records if getattr(r, "fields", {}).get("request_id") == "line-1"]
    assert len(lines) == 1


def test_refused_and_quiet_requests_have_lines_too(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.http.post("/v1/completions?key=hidden", content=b"{", headers={"X-Request-Id": "bad"})
    line = request_line(caplog, "bad")
    assert (line["status"], line["message"]) == (400, "POST /v1/completions 400")
    assert "output_tokens" not in line
    server.http.get("/health", headers={"X-Request-Id": "probe"})
    request_line(caplog, "probe")
    levels = {r.fields["request_id"]: r.levelname for r in caplog.records if hasattr(r, "fields")}
    assert (levels["bad"], levels["probe"]) == ("INFO", "DEBUG")


def test_a_client_that_leaves_has_a_line_with_what_it_got(
    slow_server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"model": "tiny", "prompt": "a", "max_tokens": 3000, "ignore_eos": True}
    headers = {"X-Request-Id": "left"}
    with pytest.raises(Exception, match="timed out"):
        slow_server.http.post("/v1/completions", json=body, headers=headers, timeout=0.3)
    line = request_line(caplog, "left")
    assert (line["status"], line["client_gone"]) == (499, True)
    assert 0 < line["output_tokens"] < 3000  # type: ignore[operator]
    slow_server.wait_idle()


def test_a_stream_that_is_left_says_so(
    slow_server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"model": "tiny", "prompt": "a", "max_tokens": 50, "ignore_eos": True, "stream": True}
    for name in ("whole", "left"):
        headers = {"X-Request-Id": name}
        with slow_server.http.stream("POST", "/v1/completions", json=body, headers=headers) as got:
            lines = got.iter_lines()
            next(lines)
            if name == "whole":
                assert "data: [DONE]" in list(lines)
    whole, left = request_line(caplog, "whole"), request_line(caplog, "left")
    assert (whole["status"], whole["output_tokens"]) == (200, 50)
    assert "client_gone" not in whole
    assert (left["status"], left["client_gone"]) == (200, True)
    assert left["output_tokens"] < 50  # type: ignore[operator]
    slow_server.wait_idle()


def test_timings_come_to_those_who_ask(server: LiveServer) -> None:
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 5, "temperature": 0}
    plain = server.http.post("/v1/completions", json=body)
    assert "metrics" not in plain.json()
    assert "server-timing" not in plain.headers
    by_header = server.http.post("/v1/completions", json=body, headers={"X-Octavo-Timings": "1"})
    by_body = server.http.post("/v1/completions", json={**body, "return_metrics": True})
    for answer in (by_header, by_body):
        metrics = answer.json()["metrics"]
        assert metrics["time_to_first_token_ms"] >= metrics["prefill_time_ms"] >= 0
        assert metrics["queue_time_ms"] >= 0
        assert metrics["mean_itl_ms"] > 0
        assert metrics["tokens_per_second"] > 0
        assert metrics["num_preemptions"] == 0
        header = answer.headers["server-timing"]
        assert f"queue_time;dur={metrics['queue_time_ms']}" in header


SAID = [{"role": "user", "content": "say:hello"}]
PROTOCOLS = {
    "/v1/messages": {"messages": SAID, "max_tokens": 9},
    "/v1/responses": {"input": SAID},
    "/api/chat": {"messages": SAID},
    "/api/generate": {"prompt": "say:hello"},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", PROTOCOLS)
def test_every_protocol_has_timings(server: LiveServer, path: str, stream: bool) -> None:
    body = {"model": "tiny", "stream": stream, **PROTOCOLS[path]}
    plain = server.http.post(path, json=body)
    assert plain.status_code == 200
    assert '"metrics"' not in plain.text
    answer = server.http.post(path, json=body, headers={"X-Octavo-Timings": "1"})
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    last = json.loads([line for line in lines if line.startswith("{")][-1])
    found = last["response"] if stream and path == "/v1/responses" else last
    assert found["metrics"]["time_to_first_token_ms"] > 0
    assert answer.text.count('"metrics"') == 1


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_ends_with_its_timings(server: LiveServer, usage: bool) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 5, "stream": True}
    if usage:
        body["stream_options"] = {"include_usage": True}
    answer = server.http.post(
        "/v1/chat/completions", json=body, headers={"X-Octavo-Timings": "true"}
    )
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n")[:-2]]
    assert all("metrics" not in event for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["metrics"]["tokens_per_second"] > 0
    assert (events[-1]["usage"] is not None) is usage


def test_the_servers_option_adds_timings_but_no_events(tiny_model: Path) -> None:
    options = ServerOptions(served_model_names=("tiny",), always_timings=True)
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 2}
    with live_server(tiny_model, server=options) as server:
        assert "metrics" in server.http.post("/v1/completions", json=body).json()
        stream = server.http.post("/v1/completions", json={**body, "stream": True}).text
        assert '"metrics"' not in stream
        options_too = {**body, "stream": True, "stream_options": {"include_usage": True}}
        assert '"metrics"' in server.http.post("/v1/completions", json=options_too).text


def test_http_metrics_count_by_route_not_by_path(server: LiveServer) -> None:
    for path in ("/nowhere/1", "/nowhere/2", "/v1/models/tiny"):
        server.http.request("BREW", path)
        server.http.get(path)
    text = server.http.get("/metrics").text
    assert "/nowhere" not in text
    assert "BREW" not in text
    count = 'octavo:http_requests_total{handler="/v1/models/{name:path}",method="GET",status="2xx"}'
    assert count in text
    assert 'octavo:http_requests_total{handler="none",method="GET",status="4xx"}' in text
    assert 'method="other"' in text


def test_a_fault_inside_answers_500_with_an_id_and_a_traceback(
    server: LiveServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("octavo.serving.openai.routes.list_models", broken)
    answer = server.http.get("/v1/models", headers={"X-Request-Id": "bug"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "bug"
    assert answer.json()["error"]["code"] == "internal_error"
    faults = [r for r in caplog.records if r.getMessage() == "unexpected error"]
    assert [r.fields["request_id"] for r in faults] == ["bug"]
    assert "a bug" not in answer.text


def test_a_log_line_cannot_be_forged_by_a_path(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = urlsplit(server.url)
    head = b"GET /%0aforged%20line HTTP/1.1\r\nHost: x\r\nX-Request-Id: forged\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head)
        connection.recv(4096)
    assert request_line(caplog, "forged")["message"] == "GET /%0aforged%20line 404"

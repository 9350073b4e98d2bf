"""Traces: what a span says, whose trace it is part of, and that nothing is loaded without them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from octavo.serving import ServerOptions  # noqa: E402
from octavo.serving.tracing import Tracing  # noqa: E402
from tests.serving.live_server import LiveServer, live_server  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "a private prompt"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Where the spans end."""
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def traced(tiny_model: Path, exporter: InMemorySpanExporter) -> Iterator[LiveServer]:
    """A server that makes spans."""
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options = ServerOptions(served_model_names=("tiny",), api_keys=("key",))
    with live_server(tiny_model, server=options, tracer=Tracing(provider)) as live:
        live.http.headers["Authorization"] = "Bearer key"
        yield live


def spans(exporter: InMemorySpanExporter, server: LiveServer) -> dict[str, Any]:
    """Spans by name, once the last answer is noted; then none are left."""
    server.http.get("/v1/models")  # its span comes last
    while not any(span.name == "GET /v1/models" for span in exporter.get_finished_spans()):
        pass
    found = {span.name: span for span in exporter.get_finished_spans()}
    exporter.clear()
    return found


def test_a_chat_is_a_span_with_phases(traced: LiveServer, exporter: InMemorySpanExporter) -> None:
    exporter.clear()
    answer = traced.http.post(
        "/v1/chat/completions",
        json={
            "model": "tiny",
            "messages": [{"role": "user", "content": SECRET}],
            "max_tokens": 5,
            "temperature": 0.5,
            "seed": 3,
        },
        headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "traced"},
    )
    found = spans(exporter, traced)
    span = found["chat tiny"]
    assert span.kind is SpanKind.SERVER
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    said = dict(span.attributes)
    assert said["gen_ai.operation.name"] == "chat"
    assert (said["gen_ai.request.model"], said["gen_ai.provider.name"]) == ("tiny", "octavo")
    assert (said["gen_ai.request.max_tokens"], said["gen_ai.request.temperature"]) == (5, 0.5)
    assert said["gen_ai.request.seed"] == 3
    usage = answer.json()["usage"]
    assert said["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert said["gen_ai.usage.output_tokens"] == 5
    assert said["gen_ai.response.finish_reasons"] == ("length",)
    assert said["gen_ai.response.id"] == answer.json()["id"]
    assert (said["http.response.status_code"], said["http.route"]) == (200, "/v1/chat/completions")
    assert said["octavo.request_id"] == "traced"
    assert str(said["octavo.tenant"]).startswith("key-")
    last = span.start_time
    for name in ("queue", "prefill", "decode"):
        phase = found[name]
        assert phase.parent.span_id == span.context.span_id
        assert last - 2_000_000 <= phase.start_time <= phase.end_time  # the clocks differ by less
        last = phase.end_time
    assert last <= span.end_time + 2_000_000
    assert SECRET not in str([s.to_json() for s in found.values()])


def test_a_refusal_is_a_span_and_a_probe_is_none(
    traced: LiveServer, exporter: InMemorySpanExporter
) -> None:
    exporter.clear()
    traced.http.get("/health")
    traced.http.get("/metrics")
    traced.http.post("/v1/completions", json={"model": "tiny"})
    traced.http.get("/v1/models", headers={"Authorization": "Bearer wrong"})
    found = spans(exporter, traced)
    assert set(found) == {"POST /v1/completions", "GET none", "GET /v1/models"}
    refused = found["POST /v1/completions"]
    assert refused.attributes["http.response.status_code"] == 400
    assert refused.status.status_code is StatusCode.UNSET  # the client's fault, not the server's
    assert found["GET none"].attributes["http.response.status_code"] == 401


@pytest.mark.parametrize("header", ["garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-1"])
def test_a_bad_traceparent_begins_a_trace(
    traced: LiveServer, exporter: InMemorySpanExporter, header: str
) -> None:
    exporter.clear()
    answer = traced.complete(max_tokens=1, temperature=0)
    traced.http.get("/v1/models/tiny", headers={"traceparent": header})
    assert answer.status_code == 200
    assert spans(exporter, traced)["GET /v1/models/{name:path}"].parent is None


def test_spans_reach_an_otlp_endpoint(tiny_model: Path) -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = Thread(target=collector.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
        options = ServerOptions(served_model_names=("tiny",), otlp_traces_endpoint=endpoint)
        try:
            with live_server(tiny_model, server=options) as server:
                server.complete(max_tokens=1)
        finally:
            collector.shutdown()
            thread.join()
    sent = b"".join(bodies)  # sent at the latest when the server stopped
    assert b"text_completion tiny" in sent
    assert b"service.name" in sent


def test_without_traces_nothing_of_them_is_loaded() -> None:
    code = "import sys, octavo.serving.app; sys.exit('opentelemetry.sdk' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

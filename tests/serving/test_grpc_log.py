"""Calls over gRPC have ids and log lines, as HTTP requests do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

from octavo.rpc import generation_pb2 as pb  # noqa: E402
from octavo.rpc import generation_pb2_grpc  # noqa: E402
from octavo.serving import ServerOptions  # noqa: E402
from tests.serving.live_server import MODEL, live_server  # noqa: E402

KEY = ("authorization", "Bearer secret")


@pytest.fixture(scope="module")
def stub(tiny_model: Path) -> Iterator[Any]:
    options = ServerOptions(served_model_names=(MODEL,), grpc_port=0, api_keys=("secret",))
    with live_server(tiny_model, backend="slow", server=options, wait=False) as live:
        live.wait_status(200)
        port = live.app.state.serving.rpc.port
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield generation_pb2_grpc.GenerationStub(channel)


def lines(caplog: pytest.LogCaptureFixture, count: int = 1) -> list[dict[str, Any]]:
    end = time.monotonic() + 20
    while True:
        found = [
            {**record.fields, "message": record.getMessage()}
            for record in caplog.records
            if record.getMessage().startswith("GRPC ")
        ]
        if len(found) >= count:
            return found
        assert time.monotonic() < end
        time.sleep(0.01)


def request(**sampling: Any) -> Any:
    return pb.GenerateRequest(prompt="private", sampling=pb.Sampling(**sampling))


def test_a_call_is_one_line(stub: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "octavo.request")
    metadata = (KEY, ("x-request-id", "call-1"))
    _, call = stub.Generate.with_call(request(max_tokens=3), metadata=metadata, timeout=20)
    assert dict(call.initial_metadata())["x-request-id"] == "call-1"
    (line,) = lines(caplog)
    assert line["message"] == "GRPC /octavo.v1.Generation/Generate OK"
    assert (line["request_id"], line["status"]) == ("call-1", "OK")
    assert (line["prompt_tokens"], line["output_tokens"]) == (7, 3)
    assert line["tenant"].startswith("key-")
    assert "private" not in caplog.text


def test_a_refused_and_a_cancelled_call_say_so(stub: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "octavo.request")
    with pytest.raises(grpc.RpcError):
        stub.Generate(request(temperature=-1.0), metadata=(KEY, ("x-request-id", "a b")))
    (refused,) = lines(caplog)
    assert refused["status"] == "INVALID_ARGUMENT"
    assert len(refused["request_id"]) == 32  # the given one could do harm
    call = stub.GenerateStream(request(max_tokens=2000, ignore_eos=True), metadata=(KEY,))
    next(iter(call))
    call.cancel()
    line = lines(caplog, 2)[1]
    assert line["status"] == "CANCELLED"
    assert 0 < line["output_tokens"] < 2000

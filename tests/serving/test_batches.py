"""/v1/batches: run beside clients, cancelled, resumed by another server, each line on its own."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch

from octavo.serving import ServerOptions
from octavo.serving.batches import work
from tests.serving.live_server import MODEL, LiveServer, live_server


@contextmanager
def serving(
    model: Path, folder: Path, backend: str = "fast", concurrency: int = 4
) -> Iterator[tuple[LiveServer, openai.OpenAI]]:
    options = ServerOptions(
        served_model_names=(MODEL,), data_dir=str(folder), batch_concurrency=concurrency
    )
    with (
        live_server(model, backend=backend, server=options) as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as client,
    ):
        yield live, client


@pytest.fixture(scope="module")
def pair(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveServer, openai.OpenAI]]:
    with serving(tiny_model, tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture
def client(pair: tuple[LiveServer, openai.OpenAI]) -> openai.OpenAI:
    return pair[1]


def line(name: str, url: str = "/v1/completions", **body: Any) -> bytes:
    body = {"model": MODEL, "temperature": 0, **body}
    request = {"custom_id": name, "method": "POST", "url": url, "body": body}
    return json.dumps(request).encode() + b"\n"


def start(client: openai.OpenAI, content: bytes, endpoint: Any = "/v1/completions") -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,
        completion_window="24h",
        metadata={"k": "v"},
        output_expires_after={"anchor": "created_at", "seconds": 3600},
    )


def finished(client: openai.OpenAI, batch: Batch, timeout_s: float = 60) -> Batch:
    end = time.monotonic() + timeout_s
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < end, batch
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    return batch


def records(client: openai.OpenAI, file_id: str | None) -> dict[Any, dict[str, Any]]:
    if file_id is None:
        return {}
    lines = client.files.content(file_id).read().splitlines()
    return {found["custom_id"]: found for found in map(json.loads, lines)}


def test_a_batch_from_begin_to_end(client: openai.OpenAI) -> None:
    good = [line(str(i), prompt="a" * (i + 1), max_tokens=3) for i in range(20)]
    bad = [
        b"nonsense\n",
        line("x", prompt=5),
        line("0", prompt="again"),
        line("y", url="/v1/files"),
    ]
    batch = finished(client, start(client, b"".join([*good[:7], *bad, *good[7:]])))
    assert batch.status == "completed"
    assert batch.metadata == {"k": "v"}
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (24, 20, 4)
    output, errors = records(client, batch.output_file_id), records(client, batch.error_file_id)
    assert set(output) == {str(i) for i in range(20)}
    assert all(r["response"]["body"]["choices"][0]["text"] == "bcd" for r in output.values())
    assert set(errors) == {None, "x", "0", "y"}
    assert errors["x"]["response"]["status_code"] == 400
    assert errors["x"]["response"]["body"]["error"]["param"] == "prompt"
    assert errors[None]["error"]["line"] == 8
    usage = batch.usage  # type: ignore[attr-defined]
    assert usage.output_tokens == 60
    assert usage.input_tokens == sum(range(1, 21))


def test_chats(client: openai.OpenAI) -> None:
    talk = [{"role": "user", "content": "hi"}]
    content = line("c", "/v1/chat/completions", messages=talk, max_tokens=2)
    batch = finished(client, start(client, content, "/v1/chat/completions"))
    found = records(client, batch.output_file_id)["c"]["response"]["body"]
    assert found["choices"][0]["message"]["content"] == "AB"


def test_the_output_is_a_file_like_others(client: openai.OpenAI) -> None:
    batch = finished(client, start(client, line("a", prompt="a", max_tokens=1)))
    assert batch.error_file_id is None
    assert batch.output_file_id is not None
    file = client.files.retrieve(batch.output_file_id)
    assert file.purpose == "batch_output"
    assert file.filename == f"{batch.id}_output.jsonl"
    assert file.expires_at == file.created_at + 3600
    assert client.batches.list(limit=1).data[0].id == batch.id


def test_an_empty_file_fails(client: openai.OpenAI) -> None:
    batch = finished(client, start(client, b"\n\n"))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.data[0].code == "empty_file"


def test_too_many_lines_fail(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_REQUESTS", 2)
    batch = finished(client, start(client, b"x\n" * 3))
    assert batch.status == "failed"


def test_clients_go_first_and_a_batch_can_be_cancelled(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path, "slow", concurrency=8) as (live, client):
        content = b"".join(line(str(i), prompt="a", max_tokens=60) for i in range(400))
        batch = start(client, content)
        while client.batches.retrieve(batch.id).status == "validating":
            time.sleep(0.02)
        assert (
            live.complete("a", max_tokens=4, temperature=0).json()["choices"][0]["text"] == "bcde"
        )
        with pytest.raises(openai.ConflictError):
            client.files.delete(batch.input_file_id)
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        batch = finished(client, batch)
        assert batch.status == "cancelled"
        done = len(records(client, batch.output_file_id))
        counts = batch.request_counts
        assert counts is not None
        assert done == counts.completed < 400
        live.wait_idle()
        with pytest.raises(openai.ConflictError):
            client.batches.cancel(batch.id)
        assert client.files.delete(batch.input_file_id).deleted


def test_a_restart_goes_on(tiny_model: Path, tmp_path: Path) -> None:
    """The second server runs what the first has not, and nothing twice."""
    num = 300
    content = b"".join(line(str(i), prompt="a", max_tokens=9) for i in range(num))
    with serving(tiny_model, tmp_path, "slow") as (_, client):
        batch = start(client, content)
        while (counts := client.batches.retrieve(batch.id).request_counts) is None or (
            counts.completed < 8
        ):
            time.sleep(0.02)
    half = (tmp_path / "files" / "work" / _output_id(tmp_path)).read_bytes()
    assert 8 <= half.count(b"\n") < num
    with serving(tiny_model, tmp_path) as (_, client):
        batch = finished(client, batch)
        assert batch.status == "completed"
        assert batch.output_file_id is not None
        whole = client.files.content(batch.output_file_id).read()
        assert whole.startswith(half)
        names = sorted(records(client, batch.output_file_id), key=int)
        assert names == [str(i) for i in range(num)]
        assert whole.count(b"\n") == num


def test_a_server_that_stops_does_not_wait_for_batches(tiny_model: Path, tmp_path: Path) -> None:
    content = b"".join(line(str(i), prompt="a", max_tokens=80) for i in range(200))
    with serving(tiny_model, tmp_path, "slow") as (live, client):
        batch = start(client, content)
        while live.client.progress().num_live == 0:
            time.sleep(0.01)
        live.loop.call_soon_threadsafe(live.app.state.serving.drain_for, 60)
        end = time.monotonic() + 10
        while live.client.progress().num_live:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.batches.retrieve(batch.id).status == "in_progress"


def _output_id(folder: Path) -> str:
    (record,) = (folder / "batches").glob("*.json")
    return json.loads(record.read_bytes())["output_id"] + ".jsonl"


def test_an_expired_batch_tells_what_was_not_run(tiny_model: Path, tmp_path: Path) -> None:
    content = b"".join(line(str(i), prompt="a", max_tokens=60) for i in range(300))
    with serving(tiny_model, tmp_path, "slow") as (_, client):
        batch = start(client, content)
    (record,) = (tmp_path / "batches").glob("*.json")
    data = json.loads(record.read_bytes())
    record.write_text(json.dumps({**data, "created_at": data["created_at"] - 24 * 3600}))
    with serving(tiny_model, tmp_path) as (_, client):
        batch = finished(client, batch)
        assert batch.status == "expired"
        output, errors = records(client, batch.output_file_id), records(client, batch.error_file_id)
        assert len(output) + len(errors) == 300
        assert {found["error"]["code"] for found in errors.values()} == {"batch_expired"}


def test_a_full_disk_only_delays(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = os.pwrite, [3]

    def pwrite(*args: Any) -> int:
        if failures[0] > 0:
            failures[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(work, "FULL_WAIT_S", 0.05)
    monkeypatch.setattr(os, "pwrite", pwrite)
    content = b"".join(line(str(i), prompt="a", max_tokens=1) for i in range(6))
    batch = finished(client, start(client, content))
    assert batch.status == "completed"
    assert failures == [0]
    assert len(records(client, batch.output_file_id)) == 6
    assert "waits for room" in caplog.text


BAD: list[tuple[int, str | None, Any]] = [
    (400, "input_file_id", {"input_file_id": None}),
    (400, "input_file_id", {"input_file_id": 5}),
    (404, "input_file_id", {"input_file_id": "file-1"}),
    (404, "input_file_id", {"input_file_id": "../../x"}),
    (400, "endpoint", {"endpoint": None}),
    (400, "endpoint", {"endpoint": "/v1/models"}),
    (400, "endpoint", {"endpoint": ["/v1/completions"]}),
    (400, "completion_window", {"completion_window": "1h"}),
    (400, "completion_window", {"completion_window": None}),
    (400, "metadata", {"metadata": []}),
    (400, "metadata.a", {"metadata": {"a": 1}}),
    (400, "metadata." + "a" * 65, {"metadata": {"a" * 65: "x"}}),
    (400, "metadata.a", {"metadata": {"a": "x" * 513}}),
    (400, "metadata", {"metadata": {str(i): "x" for i in range(17)}}),
    (400, "output_expires_after", {"output_expires_after": {"anchor": "created_at"}}),
    (
        400,
        "output_expires_after",
        {"output_expires_after": {"anchor": "created_at", "seconds": 5}},
    ),
    (400, "output_expires_after", {"output_expires_after": 3600}),
    (400, "surprise", {"surprise": 1}),
]


@pytest.mark.parametrize(("status", "param", "change"), BAD)
def test_bad_bodies(
    pair: tuple[LiveServer, openai.OpenAI], status: int, param: str, change: dict[str, Any]
) -> None:
    live, client = pair
    file = client.files.create(file=("in", b"x"), purpose="batch")
    good = {
        "input_file_id": file.id,
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    }
    answer = live.http.post("/v1/batches", json={**good, **change})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    client.files.delete(file.id)


def test_bad_requests_beside_the_body(pair: tuple[LiveServer, openai.OpenAI]) -> None:
    live, client = pair
    file = client.files.create(file=("in", b"x"), purpose="assistants")
    good = {"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h"}
    answer = live.http.post("/v1/batches", json=good)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_file_id")
    for raw in (b"", b"{", b"[]"):
        assert live.http.post("/v1/batches", content=raw).status_code == 400
    for method, path in [("GET", ""), ("POST", "/cancel")]:
        answer = live.http.request(method, f"/v1/batches/batch_1{path}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "batch_id")
    assert live.http.get("/v1/batches?limit=101").status_code == 400

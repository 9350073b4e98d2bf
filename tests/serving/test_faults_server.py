"""Faults around a real server program: killed, flooded, left alone by its clients, out of disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from octavo.decoding import SamplingParams
from octavo.engine import EngineOptions, Request
from octavo.engine.process import EngineProcess
from octavo.errors import QueueFullError
from octavo.serving import ServerOptions
from octavo.serving.batches import work
from tests.serving.live_server import MODEL, live_server
from tests.serving.test_server_process import Program, program
from tests.serving.tiny_model import FACTORY

LONG = {"model": MODEL, "prompt": "x" * 100, "ignore_eos": True, "max_tokens": 3000}


def wait_gone(process: psutil.Process, timeout_s: float = 5.0) -> None:
    gone, _ = psutil.wait_procs([process], timeout=timeout_s)
    assert gone or process.status() == psutil.STATUS_ZOMBIE


def metric(server: Program, name: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"octavo:{name}{{")
    )


def open_stream(server: Program, body: dict[str, Any]) -> socket.socket:
    """A connection on which a stream has been asked for."""
    url = server.http.base_url
    connection = socket.create_connection((url.host, url.port))
    raw = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw)
    return connection


def test_killing_the_server_leaves_nothing(tiny_model: Path) -> None:
    """No process, no shared memory, no file, and the memory comes back."""
    shared = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    with program(tiny_model, "slow", stderr=subprocess.DEVNULL) as server:
        server.wait_status(200)
        engine = server.engine()
        pid = server.process.pid
        streams = [open_stream(server, LONG) for _ in range(5)]
        for stream in streams:
            assert stream.recv(1) == b"H"
        assert psutil.Process(pid).memory_info().rss > 0
        server.process.kill()
        server.process.wait()
        wait_gone(engine)
        for stream in streams:
            stream.close()
    assert not list(Path(tempfile.gettempdir()).glob(f"octavo-engine-{pid}-*"))
    if shared:
        assert not {name for name in os.listdir("/dev/shm") if "octavo" in name} - shared


def test_killing_the_server_while_its_engine_is_stopped(tiny_model: Path) -> None:
    with program(tiny_model, "slow", stderr=subprocess.DEVNULL) as server:
        server.wait_status(200)
        engine = server.engine()
        engine.suspend()
        server.process.kill()
        server.process.wait()
        wait_gone(engine)


def test_500_aborted_streams_leave_no_trace(tiny_model: Path) -> None:
    """All blocks are free again and neither process has grown."""
    with program(tiny_model, "slow", stderr=subprocess.DEVNULL) as server:
        server.wait_status(200)
        processes = [psutil.Process(server.process.pid), server.engine()]

        def abort(count: int) -> list[int]:
            for _ in range(count // 50):
                streams = [open_stream(server, LONG) for _ in range(50)]
                for stream in streams[::2]:
                    stream.recv(1)
                for stream in streams:
                    stream.close()
            end = time.monotonic() + 30
            while metric(server, "num_requests_running") or metric(server, "num_requests_waiting"):
                assert time.monotonic() < end
                time.sleep(0.02)
            return [process.memory_info().rss for process in processes]

        abort(100)
        before = abort(100)
        after = abort(500)
        assert metric(server, "kv_blocks_used") == 0
        assert metric(server, "kv_blocks_free") == metric(server, "kv_blocks")
        for old, new in zip(before, after, strict=True):
            assert new - old < 8 * 2**20, (before, after)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_gigabyte_is_refused_early(tiny_model: Path, chunked: bool) -> None:
    with program(tiny_model, stderr=subprocess.DEVNULL) as server:
        server.wait_status(200)
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        url = server.http.base_url
        length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1073741824"
        piece = b"x" * 2**16
        framed = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
        sent = 0
        with socket.create_connection((url.host, url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(
                f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode()
            )
            with contextlib.suppress(ConnectionError, TimeoutError):
                while sent < 2**30:
                    connection.sendall(framed)
                    sent += len(piece)
            answer = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                answer = connection.recv(4096)
        assert sent < 64 * 2**20
        assert not answer or b" 413 " in answer.partition(b"\r\n")[0]
        assert process.memory_info().rss - before < 64 * 2**20
        assert server.http.get("/health/ready").status_code == 200


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("slowhttptest") is None, reason="slowhttptest is not installed")
@pytest.mark.parametrize("mode", ["-H", "-B", "-X"])
def test_slow_clients_keep_nobody_out(tiny_model: Path, mode: str) -> None:
    """slowhttptest's slow heads, bodies and readers: others are answered all the while."""
    with program(tiny_model, stderr=subprocess.DEVNULL) as server:
        server.wait_status(200)
        url = f"{server.http.base_url}/v1/models" if mode == "-X" else server.http.base_url
        command = ["slowhttptest", mode, "-c", "300", "-r", "150", "-i", "1", "-l", "6", "-p", "2"]
        attack = subprocess.Popen([*command, "-u", str(url)], stdout=subprocess.PIPE)
        body = {"model": MODEL, "prompt": "a", "max_tokens": 3, "temperature": 0}
        answered = 0
        while attack.poll() is None:
            answer = server.http.post("/v1/completions", json=body)
            assert answer.json()["choices"][0]["text"] == "bcd"
            answered += 1
            time.sleep(0.1)
        output = attack.communicate()[0].decode(errors="replace")
        assert answered > 2
        assert "service available:" not in output or "YES" in output


async def test_ten_thousand_requests_wait_their_turn(tiny_model: Path) -> None:
    """A queue of 10,000 is worked off completely, in order, with little memory; the next request
    is refused with the time to come again."""
    options = EngineOptions(str(tiny_model), backend="fast", max_queue=10_000)
    client = EngineProcess(options, factory=FACTORY)
    await client.start()
    try:
        await client.wait_ready()
        engine = psutil.Process(client.pid)
        before = engine.memory_info().rss
        engine.suspend()  # so that all of them meet a full queue
        order: list[int] = []

        async def one(place: int) -> str:
            wanted = Request(f"r{place}", [65] * 20, SamplingParams(max_tokens=1, temperature=0))
            text = "".join([delta.text async for delta in client.stream(wanted)])
            order.append(place)
            return text

        tasks = [asyncio.create_task(one(place)) for place in range(10_000 + 64)]
        while client.num_live < len(tasks):
            await asyncio.sleep(0)
        with pytest.raises(QueueFullError) as refused:
            await one(-1)
        assert refused.value.retry_after_s
        assert client.full_for_s is not None
        engine.resume()
        texts = await asyncio.gather(*tasks)
        assert set(texts) == {"B"}
        assert order == sorted(order)
        assert engine.memory_info().rss - before < 200 * 2**20
        assert client.num_restarts == 0
        stats = await client.stats()
        assert (stats.num_used_blocks, stats.num_waiting) == (0, 0)
    finally:
        await client.close()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own; skips where it cannot be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "octavo-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_during_a_batch(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch waits for room while clients are answered, and loses nothing."""
    monkeypatch.setattr(work, "FULL_WAIT_S", 0.05)
    request = {"model": MODEL, "prompt": "a", "max_tokens": 60, "temperature": 0, "logprobs": 5}
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": request}
        for i in range(60)
    ]
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    with small_disk(tmp_path / "disk", "1m") as disk:
        options = ServerOptions(served_model_names=(MODEL,), data_dir=str(disk))
        with live_server(tiny_model, server=options) as server:
            upload = server.http.post(
                "/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"}
            )
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            ballast.chmod(0o600)
            os.truncate(ballast, max(0, ballast.stat().st_size - 64 * 1024))
            batch = server.http.post(
                "/v1/batches",
                json={
                    "input_file_id": upload.json()["id"],
                    "endpoint": "/v1/completions",
                    "completion_window": "24h",
                },
            ).json()
            path = f"/v1/batches/{batch['id']}"
            time.sleep(1.5)
            assert server.http.get(path).json()["status"] == "in_progress"
            assert server.complete("a", max_tokens=3, temperature=0).status_code == 200
            ballast.unlink()
            end = time.monotonic() + 20
            while (batch := server.http.get(path).json())["status"] != "completed":
                assert time.monotonic() < end, batch
                time.sleep(0.05)
            output = server.http.get(f"/v1/files/{batch['output_file_id']}/content").text
            found = [json.loads(line) for line in output.splitlines()]
            assert sorted(int(one["custom_id"]) for one in found) == list(range(60))
            assert all(one["response"]["status_code"] == 200 for one in found)


def test_a_reader_that_stops_reading_is_dropped(tiny_model: Path) -> None:
    """Its request is aborted once too much waits for it; it never holds more than the bound."""
    from octavo.engine.supervision import Supervision

    options = ServerOptions(
        served_model_names=(MODEL,), supervision=Supervision(max_stream_backlog=20_000)
    )
    with live_server(tiny_model, backend="fast", server=options) as server:
        address = httpx.URL(server.url)
        raw = json.dumps({**LONG, "stream": True, "logprobs": 20, "n": 4}).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((address.host, address.port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        values = server.wait_idle(20)
        assert values["octavo:kv_blocks_used"] == 0
        text = b""
        connection.settimeout(10)
        while b"[DONE]" not in text and (data := connection.recv(65536)):
            text += data
        connection.close()
        assert b"slow_reader" in text
        assert server.complete("a", max_tokens=3).status_code == 200

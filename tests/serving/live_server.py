"""A server on a loopback port, in a thread of the test process; its engine is a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from octavo.engine.options import EngineOptions
from octavo.engine.process import EngineProcess
from octavo.records import replace
from octavo.serving import ServerOptions, create_app
from octavo.serving.observe import Tracer
from octavo.serving.server import listen, uvicorn_config
from tests.serving.tiny_model import FACTORY

MODEL = "tiny"


@dataclass
class LiveServer:
    """url without a slash at the end; `client` belongs to the server's loop: read, do not call."""

    url: str
    client: EngineProcess
    loop: asyncio.AbstractEventLoop
    http: httpx.Client
    app: FastAPI

    def complete(self, prompt: str = "a", **body: Any) -> httpx.Response:
        """POST /v1/completions."""
        return self.http.post("/v1/completions", json={"model": MODEL, "prompt": prompt, **body})

    def metrics(self) -> dict[str, float]:
        """Sums of the /metrics samples by name."""
        values: dict[str, float] = {}
        for line in self.http.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                values[name] = values.get(name, 0.0) + float(value)
        return values

    def wait_idle(self, timeout_s: float = 20.0) -> dict[str, float]:
        """Metrics once nothing runs; fails after timeout_s."""
        end = time.monotonic() + timeout_s
        while True:
            values = self.metrics()
            busy = values.get("octavo:num_requests_running", 1) + values.get(
                "octavo:num_requests_waiting", 1
            )
            if busy == 0:
                return values
            assert time.monotonic() < end, values
            time.sleep(0.02)

    @contextmanager
    def engine_stopped(self) -> Iterator[None]:
        """The engine does nothing meanwhile: what is sent stays where it is."""
        pid = self.client.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def wait_status(self, status: int, timeout_s: float = 120.0) -> httpx.Response:
        """/health once it has this status."""
        end = time.monotonic() + timeout_s
        while (answer := self.http.get("/health")).status_code != status:
            assert time.monotonic() < end, answer.text
            assert '"dead"' not in answer.text, answer.text
            time.sleep(0.02)
        return answer


def wait_until(reached: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return once `reached()` is true; fail after timeout_s."""
    end = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free loopback port for a program that the test starts. It stays bound here without
    listening, so that nobody else is given it; a listener that may reuse addresses can have it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def live_server(
    model: Path | str,
    backend: str = "fast",
    factory: str = FACTORY,
    server: ServerOptions | None = None,
    wait: bool = True,
    verify: ssl.SSLContext | bool = True,
    tracer: Tracer | None = None,
    shim: type[Any] | None = None,
    **engine: Any,
) -> Iterator[LiveServer]:
    """Run a server; with `wait`, until it is ready. shim: an ASGI middleware round everything."""
    options = server or ServerOptions(served_model_names=(MODEL,))
    client = EngineProcess(
        EngineOptions(model=str(model), backend=backend, **engine),
        factory=factory,
        supervision=options.supervision,
    )
    with listen("127.0.0.1", 0) as listener:
        options = replace(options, shutdown_timeout_s=2)
        app = create_app(client, options, tracer)
        if shim is not None:
            app.add_middleware(shim)
        runner = uvicorn.Server(uvicorn_config(app, options))
        loops: list[asyncio.AbstractEventLoop] = []

        async def main() -> None:
            loops.append(asyncio.get_running_loop())
            await runner.serve(sockets=[listener])

        thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-server")
        thread.start()
        scheme = "https" if options.tls else "http"
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        try:
            while not runner.started:
                assert thread.is_alive()
                time.sleep(0.01)
            with httpx.Client(base_url=url, timeout=30, verify=verify) as http:
                live = LiveServer(url, client, loops[0], http, app)
                if wait:
                    live.wait_status(200)
                yield live
        finally:
            runner.should_exit = True
            thread.join(30)
            assert not thread.is_alive()

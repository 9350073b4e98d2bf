"""The commands as a user types them: in processes of their own, on the smallest demo model."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.weights import DEMO_MODELS

pytestmark = pytest.mark.model
OCTAVO = (sys.executable, "-m", "octavo")


@pytest.fixture(scope="module")
def model() -> str:
    from octavo.weights import resolve

    return str(resolve("smollm2"))


def octavo(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OCTAVO, *args], input=stdin, capture_output=True, text=True, check=False
    )


def test_run_answers(model: str):
    result = octavo("run", model, "--raw", "The capital of France is", "-n", "1", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["text"] == " Paris"


def test_streamed_answer_is_the_whole_answer(model: str):
    question = ("run", model, "Name three rivers.", "-n", "24")
    whole = json.loads(octavo(*question, "--json").stdout)
    streamed = octavo(*question)
    assert streamed.stdout == whole["text"] + "\n"
    assert f"output {len(whole['token_ids'])} tokens" in streamed.stderr


def test_chat_in_a_pipe_finds_what_was_said_in_the_cache(model: str):
    lines = "My name is Ada and I live by the sea.\nWhat is my name?\n/stats\n"
    result = octavo("chat", model, "--temperature", "0", "-n", "8", stdin=lines)
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stdout.splitlines() if line]) == 2
    assert " cached)" in result.stderr
    assert "context:" in result.stderr


def test_inspect_reports_what_the_file_holds(model: str):
    report = json.loads(octavo("inspect", model, "--json", "--tensors").stdout)
    assert report["architecture"] == "llama"
    assert report["file_bytes"] == DEMO_MODELS["smollm2"].size_bytes
    assert report["runs"] is True
    assert sum(use["tensors"] for use in report["schemes"]) == len(report["tensors"])
    assert sum(use["bytes"] for use in report["schemes"]) == report["weight_bytes"]
    # 30 layers of 3 KV heads of 64, keys and values in 16 bits.
    assert report["kv_bytes_per_token"] == 30 * 3 * 64 * 2 * 2
    assert "tensors by type" in octavo("inspect", model).stdout


def test_bench_writes_what_it_measured(model: str, tmp_path: Path):
    out = tmp_path / "bench.json"
    sizes = ("--input-len", "24", "--output-len", "4", "--concurrency", "1,3", "--repeat", "1")
    result = octavo("bench", "engine", model, *sizes, "--json", str(out))
    assert result.returncode == 0, result.stderr
    report = json.loads(out.read_text())
    assert [r["workload"]["concurrency"] for r in report["results"]] == [1, 3]
    assert all(r["decode_tps"]["median"] > 0 for r in report["results"])
    assert report["machine"]["isa"] in ("amx", "avx512", "avxvnni", "avx2", "neon", "scalar")
    assert "prefill" in result.stdout


# A process starts with its parent's peak, so a small program stands between.
PEAK_BYTES = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)
"""


def test_peak_memory_is_file_and_cache_and_little_more(model: str):
    args = ("run", model, "Count to ten.", "-n", "16", "-q", "--kv-cache-memory", "16M")
    command = [sys.executable, "-c", PEAK_BYTES, *OCTAVO, *args]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    exit_code, peak_bytes = map(int, output.split())
    assert exit_code == 0
    assert peak_bytes <= DEMO_MODELS["smollm2"].size_bytes + (16 << 20) + 120_000_000


class Terminal:
    """A process on a pseudo-terminal of its own, and everything it has written."""

    def __init__(self, *command: str, env: dict[str, str]) -> None:
        self.output = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, env)

    def send(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def wait_for(self, text: str, since: int = 0, timeout_s: float = 60) -> int:
        """Read until `text` shows after position `since`; returns where it ends."""
        deadline = time.monotonic() + timeout_s
        while (found := self.output.find(text, since)) < 0:
            ready, _, _ = select.select([self.descriptor], [], [], deadline - time.monotonic())
            assert ready, f"waited for {text!r}, got {self.output[since:]!r}"
            self.output += self._read()
        return found + len(text)

    def interrupt(self, text: str, since: int) -> int:
        """Press Ctrl-C until `text` shows: readline drops a key that comes before it is ready."""
        for _ in range(30):
            self.send("\x03")
            ready, _, _ = select.select([self.descriptor], [], [], 1.0)
            if ready:
                break
        return self.wait_for(text, since)

    def exit_code(self) -> int:
        """Read what is left and wait for the end."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> str:
        try:
            return os.read(self.descriptor, 4096).decode("utf-8", "replace")
        except OSError:  # the other side is closed
            return ""


@pytest.fixture
def chat(model: str, tmp_path: Path) -> Iterator[Terminal]:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    terminal = Terminal(*OCTAVO, "chat", model, "--temperature", "0", env=env)
    terminal.wait_for(">>> ")
    yield terminal
    os.close(terminal.descriptor)


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(chat: Terminal, tmp_path: Path):
    chat.send("/set max_tokens 4000\n")
    here = chat.wait_for(">>> ", chat.wait_for("max_tokens = 4000"))
    chat.send("Write a very long story about the sea, with many chapters.\n")
    here = chat.wait_for("chapters.", here)
    while len(chat.output) < here + 20:  # the answer has begun
        chat.output += chat._read()
    chat.send("\x03")
    here = chat.wait_for(">>> ", chat.wait_for("(stopped)", here))
    chat.wait_for(">>> ", chat.interrupt("Ctrl-D leaves", here))
    chat.send("\x04")
    assert chat.exit_code() == 0
    assert "very long story" in (tmp_path / "octavo" / "chat_history").read_text()


def test_exit_leaves(chat: Terminal):
    chat.send("/exit\n")
    assert chat.exit_code() == 0


def test_serve_says_when_the_address_is_taken(model: str):
    pytest.importorskip("uvicorn", reason="needs the serve extra")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = octavo("serve", model, "--port", str(port))
    assert result.returncode == 1
    assert f"octavo: serve: cannot listen on 127.0.0.1:{port}: " in result.stderr
    assert "Traceback" not in result.stderr

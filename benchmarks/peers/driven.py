"""Engines written in Python, each in an environment and a process of its own.

Such an engine takes half a minute and more to load, so it is loaded once and stays, stopped, while
the others are measured: some look for work all the time. Its driver (drivers/NAME.py, run by its
own Python, importing nothing of this repository) reads one JSON line per run, {"input_len",
"output_len", "streams"}, and answers one: {"seconds": ...} or {"error": ...}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import Task

DRIVERS = Path(__file__).parent / "drivers"


class Driven:
    """One driver process. environment: variables it needs besides ours."""

    def __init__(
        self,
        name: str,
        driver: str,
        python: Path,
        arguments: list[Any],
        environment: dict[str, str],
    ) -> None:
        self.name, self.version = name, "?"
        self._driver = driver
        self._command = [str(python), str(DRIVERS / driver), *map(str, arguments)]
        self._environment = {**os.environ, **environment}
        self._environment.pop("PYTHONPATH", None)
        self._process: subprocess.Popen[str] | None = None
        self._warm: set[Task] = set()

    def measure(self, task: Task) -> float | None:
        """See Peer. The first run of a task is made twice."""
        if task not in self._warm:
            self._warm.add(task)
            self._seconds(task.input_len, task.output_len, task.streams)
        seconds = self._seconds(task.input_len, task.output_len, task.streams)
        if seconds is None:
            return None
        decodes = task.streams == 1 and task.output_len > 1
        first = self._seconds(task.input_len, 1, 1) if decodes else 0.0
        return task.rate(seconds, first or 0.0)

    def close(self) -> None:
        """Let the driver leave; kill it if it does not."""
        process = self._process
        if process is not None and process.stdin is not None and process.stdout is not None:
            with contextlib.suppress(ProcessLookupError):  # it died
                os.killpg(process.pid, signal.SIGCONT)
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def _seconds(self, input_len: int, output_len: int, streams: int) -> float | None:
        answer = self._ask({"input_len": input_len, "output_len": output_len, "streams": streams})
        if "error" in answer:
            print(f"{self.name}: {answer['error']}", file=sys.stderr)
            return None
        return float(answer["seconds"])

    def _ask(self, question: dict[str, int]) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        os.killpg(process.pid, signal.SIGCONT)
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        answer = self._read(process)
        os.killpg(process.pid, signal.SIGSTOP)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        print(f"loading {self.name}", file=sys.stderr)
        pipe = subprocess.PIPE
        with (Path("build") / f"{self._driver}.log").open("w") as log:
            process = self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
                start_new_session=True,  # a group of its own, to be stopped whole
            )
        self.version = str(self._read(process)["version"])
        return process

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """The next answer; what the engine itself prints in between is passed over."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"octavo_driver"'):
                answer: dict[str, Any] = json.loads(line)["octavo_driver"]
                return answer
        raise SystemExit(f"{self.name} died; see build/{self._driver}.log")


def environment_for(
    cache: Path, given: Path | None, requirement: str, without: Sequence[str] = ()
) -> Path:
    """The Python of an environment with a package, made on the first call. without: packages that
    come along and are taken out again."""
    if given is not None:
        return given
    folder = cache / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        print(f"installing {requirement} in {folder} (once)", file=sys.stderr)
        venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", requirement], check=True)
        if without:
            subprocess.run([*pip, "uninstall", "-y", *without], check=True)
        (folder / ".complete").touch()
    return python

"""Octavo, through its own `bench engine`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.command import run
from benchmarks.peers.peer import Task


class Octavo:
    """Each run is a fresh process with one warm-up."""

    name = "Octavo"

    def __init__(self, model: Path, threads: int, products: str = "auto", mixed: int = 192) -> None:
        from octavo import __version__

        self.version = __version__
        self._model, self._threads = model, threads
        self._engine = ["--products", products, "--max-num-mixed-tokens", mixed]

    def measure(self, task: Task) -> float:
        """See Peer."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "result.json"
            lengths = ["--input-len", task.input_len, "--output-len", task.output_len]
            options = ["--concurrency", task.streams, "--repeat", 1, "--threads", self._threads]
            options += self._engine
            command = [sys.executable, "-m", "octavo", "bench", "engine", self._model]
            run([*command, *lengths, *options, "--json", out])
            (result,) = json.loads(out.read_text())["results"]
        return float(result[task.metric]["median"])

    def close(self) -> None:
        """Nothing stays."""

"""ik_llama.cpp: llama.cpp's fork for processors, built beforehand; no registry carries it.

cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
cmake --build build --target llama-bench llama-batched-bench
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.peers.command import run
from benchmarks.peers.llama_cpp import BINARIES, LlamaCpp
from benchmarks.peers.peer import Task

COLUMNS = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")


class IkLlamaCpp(LlamaCpp):
    """Weights are repacked at load (-rtr), which is what its own tables are made with."""

    name = "ik_llama.cpp"
    version = "as built"
    flags = ("-rtr", "1")

    def _many(self, task: Task) -> float:
        with tempfile.TemporaryDirectory() as folder:  # it leaves a llama.log where it runs
            text = run([*self._batched(task), "-rtr"], stderr=True, folder=Path(folder))
        return task.streams * task.output_len / seconds_of(text)


def seconds_of(text: str) -> float:
    """How long the only run of llama-batched-bench's table took.

    Raises:
        ValueError: there is no such table, or not one row in it.
    """
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    tables = [row for row in rows if len(row) == len(COLUMNS)]
    if len(tables) != 3 or tuple(tables[0]) != COLUMNS:
        raise ValueError(f"llama-batched-bench: expected a table of one run, got:\n{text}")
    return float(tables[2][COLUMNS.index("T s")])


def find(given: Path | None) -> Path:
    """The folder with its programs; it is not built here."""
    missing = [name for name in BINARIES if not (given and (given / name).exists())]
    if given is None or missing:
        raise SystemExit(f"--ik-llama-bin {given}: no {' and no '.join(missing)} in there")
    return given

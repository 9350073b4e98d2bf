"""llama.cpp as a source of logits: its library, called by a small program on the same token ids."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.peers.llama_cpp import find_or_build

from octavo.backends.base import Floats
from octavo.eval import Window

PROGRAM = Path(__file__).with_name("llama_logits.cpp")
ROWS = 32
"""Rows of logits read at a time."""


def build_program(cache: Path, llama_bin: Path | None) -> Path:
    """The compiled llama_logits, built again when its source or llama.cpp has changed."""
    libraries = find_or_build(cache, llama_bin).resolve()
    source = _source_of(libraries.parent)
    program = cache / "llama_logits"
    newest = max(PROGRAM.stat().st_mtime, (libraries / "libllama.so").stat().st_mtime)
    if not program.exists() or program.stat().st_mtime < newest:
        cache.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}"]
        links = [f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
        command = ["c++", "-std=c++20", "-O2", *includes, str(PROGRAM), *links, "-o", str(program)]
        subprocess.run(command, check=True)
    return program


class LlamaSource:
    """A process that evaluates windows as single batches."""

    def __init__(self, name: str, program: Path, model: Path, context: int, threads: int) -> None:
        self.name = name
        command = [str(program.absolute()), str(model), str(context), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        (self.vocab_size,) = struct.unpack("<i", self._read(4))

    def logits(self, window: Window) -> Iterator[Floats]:
        ids, first = window.ids[:-1], window.first
        assert self._process.stdin is not None
        self._process.stdin.write(np.array([len(ids), first, *ids], np.int32).tobytes())
        self._process.stdin.flush()
        for start in range(first, len(ids), ROWS):
            rows = min(ROWS, len(ids) - start)
            data = self._read(4 * rows * self.vocab_size)
            yield np.frombuffer(data, np.float32).reshape(rows, self.vocab_size)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) != size:
            raise SystemExit(f"llama_logits ended with exit code {self._process.wait()}")
        return data


def _source_of(build: Path) -> Path:
    """Where a CMake build folder's sources lie."""
    key = "CMAKE_HOME_DIRECTORY:INTERNAL="
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(key):
            return Path(line.removeprefix(key))
    raise SystemExit(f"{build}: no CMake build folder, so llama.cpp's headers cannot be found")

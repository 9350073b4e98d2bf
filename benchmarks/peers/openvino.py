"""OpenVINO GenAI, which reads the same GGUF file."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.driven import Driven, environment_for

REQUIREMENT = "openvino-genai==2026.4.1.0"


def openvino(model: Path, threads: int, cache: Path, python: Path | None) -> Driven:
    """The peer. It cannot read every quantization; its driver then says so."""
    found = environment_for(cache, python, REQUIREMENT)
    arguments = [model.resolve(), threads]
    return Driven("OpenVINO GenAI", "openvino_genai.py", found, arguments, {})

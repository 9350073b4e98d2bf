"""Writes the Python of proto/ into src/: `python scripts/protos.py`. Needs grpcio-tools.

What is written is committed: an installation then needs no compiler, and a reader sees what runs.
tests/unit/test_protos.py tells when it is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]


def generate(target: Path) -> None:
    """Compile every .proto into `target`, the root of the package tree."""
    sources = [str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto").rglob("*.proto")]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    arguments = ["protoc", f"--proto_path={ROOT / 'proto'}", *outputs, *sorted(sources)]
    if protoc.main(arguments) != 0:
        sys.exit(1)


if __name__ == "__main__":
    generate(ROOT / "src")

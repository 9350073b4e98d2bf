"""The processor's instruction sets. One is chosen once a process, so that checks of the lesser ones
run in a child."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from octavo import _native

ISA = _native.active_isa()
# Best first: a machine that has one has all to its right.
X86 = ["amx", "avx512", "avxvnni", "avx2", "scalar"]
LESSER = X86[X86.index(ISA) + 1 :] if ISA in X86 else ["scalar"] if ISA == "neon" else []
OTHERS = [isa for isa in X86 if isa != ISA] if ISA in X86 else LESSER
# What a machine needs for a set that is better than its own.
NEEDS = {
    "amx": "amx_tile, amx_int8 and a Linux that lends tiles to a process",
    "avx512": "avx512f, bw, dq, vl and avx512_vnni",
    "avxvnni": "avx_vnni, or avx512vl and avx512_vnni",
    "avx2": "avx2 and fma",
}
in_parent = pytest.mark.skipif("OCTAVO_ISA" in os.environ, reason="the parent does this")


def skip_missing(isa: str) -> None:
    if isa not in LESSER:
        pytest.skip(f"{isa} needs {NEEDS[isa]}; this machine's best set is {ISA}")


def assert_passes(isa: str, file: str, select: str) -> None:
    """The tests of a file that `select` chooses (as pytest's -k) pass with that instruction set."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", file, "-k", select]
    environment = {**os.environ, "OCTAVO_ISA": isa}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout[-4000:]

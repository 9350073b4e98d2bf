"""What a number was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """isa: the instruction set the native kernels chose; threads: what an engine would use."""

    cpu: str
    isa: str
    threads: int
    memory_bytes: int
    system: str


def describe_machine() -> Machine:
    """This machine as Octavo sees it, limits of its cgroup included."""
    from octavo.machine import instruction_set, memory, num_threads

    return Machine(
        cpu=_cpu_name(),
        isa=instruction_set(),
        threads=num_threads(),
        memory_bytes=memory().limit,
        system=f"{platform.system()} {platform.machine()}",
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or f"{os.cpu_count()} cores"

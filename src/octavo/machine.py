"""What this machine lets the process use: CPUs and memory, as cgroups and affinity limit them.

Linux only; where a file is missing the limit is unknown (None) and the physical figure counts.
`root` is "/" except in tests.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InvalidParameterError

MAX_THREADS = 1024
"""More would not compute faster anywhere, and each costs a stack and a wake-up."""
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


@dataclass(frozen=True)
class Memory:
    """Bytes. limit: physical memory or the cgroup's limit, whichever is smaller. available: what
    can still be taken without swapping or being killed. source: where the limit comes from."""

    limit: int
    available: int
    source: str


def memory(root: Path = Path("/")) -> Memory:
    """The memory this process may use, and how much of it is free now."""
    info = _table(root / "proc/meminfo", scale=1024)
    limit, source = info.get("MemTotal", 0), "physical memory"
    available = info.get("MemAvailable", limit)
    for folder in _cgroup_folders(root, "memory"):
        group_limit, usage = _limit_and_usage(folder)
        if group_limit is not None and group_limit < limit:
            limit, source = group_limit, "cgroup"
        if group_limit is not None:
            available = min(available, max(0, group_limit - usage))
    return Memory(limit, available, source)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time the cgroups grant, e.g. 1.5; None without a limit."""
    quotas = []
    for folder in _cgroup_folders(root, "cpu"):
        if text := _read(folder / "cpu.max"):
            quota, _, period = text.partition(" ")
        else:
            quota = _read(folder / "cpu.cfs_quota_us") or "max"
            period = _read(folder / "cpu.cfs_period_us") or "100000"
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def num_cores(root: Path = Path("/"), cpus: set[int] | None = None) -> int:
    """Physical cores among `cpus` (default: those this process may run on)."""
    usable = os.sched_getaffinity(0) if cpus is None else cpus
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(root / siblings.format(cpu)) or str(cpu) for cpu in usable}) or 1


def num_threads(requested: int = 0, root: Path = Path("/"), cpus: set[int] | None = None) -> int:
    """Threads to compute with: as requested, or as OCTAVO_NUM_THREADS says, or one per physical
    core within the quota. Raises InvalidParameterError for what is not from 1 to MAX_THREADS."""
    if requested > 0:
        return _checked("num_threads", str(requested))
    if chosen := os.environ.get("OCTAVO_NUM_THREADS"):
        return _checked("OCTAVO_NUM_THREADS", chosen)
    quota = cpu_quota(root)
    cores = num_cores(root, cpus)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def instruction_set() -> str:
    """The one that the native kernels use. Raises InvalidParameterError where OCTAVO_ISA asks for
    one that this processor lacks."""
    from octavo import _native

    try:
        return _native.active_isa()
    except ValueError as error:
        message = str(error).removeprefix("OCTAVO_ISA: ")
        raise InvalidParameterError("OCTAVO_ISA", message) from None


def choose_products(wanted: str) -> str:
    """How an engine multiplies quantized weights: "int8", "bf16", or "mixed", which is bf16 for
    prompts and int8 for what is generated. "auto" is mixed where this machine has both. Raises
    InvalidParameterError where it has not what is wanted."""
    from octavo import _native

    isa = instruction_set()
    if _native.multiplies_bf16():
        if wanted in ("int8", "mixed"):
            got = f'got "{wanted}", but OCTAVO_ISA={isa} multiplies bfloat16 alone; unset it'
            raise InvalidParameterError("products", got)
        return "bf16"
    if _native.has_bf16_products():
        return "mixed" if wanted == "auto" else wanted
    if wanted in ("bf16", "mixed"):
        expected = (
            "tiles of bfloat16 (amx_bf16 and avx512_fp16), a build by GCC 12, Clang 14 or newer, "
            "and OCTAVO_ISA unset"
        )
        raise InvalidParameterError("products", f"{wanted} needs {expected}; got {isa}")
    return "int8"


def _checked(name: str, text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 1 <= int(text) <= MAX_THREADS:
        got = f"got {text!r:.80}, expected a number from 1 to {MAX_THREADS}"
        raise InvalidParameterError(name, got)
    return int(text)


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """This process's folder of a controller and its parents, innermost first. Inside a container
    the path in /proc may not exist; the mount point is then the container's own group."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return _chain(root / "sys/fs/cgroup" / controller, path)
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return _chain(root / "sys/fs/cgroup", line[3:])
    return []


def _chain(mount: Path, path: str) -> list[Path]:
    inner = mount / path.strip("/")
    parents = [inner, *inner.parents]
    return [p for p in parents[: parents.index(mount) + 1] if p.is_dir()]


def _limit_and_usage(folder: Path) -> tuple[int | None, int]:
    """A memory group's limit and what of it cannot be reclaimed. Clean file pages can be."""
    stat = _table(folder / "memory.stat")
    if (text := _read(folder / "memory.max")) is not None:
        usage = _read(folder / "memory.current")
        reclaimable = stat.get("inactive_file", 0) + stat.get("active_file", 0)
    else:
        text = _read(folder / "memory.limit_in_bytes")
        usage = _read(folder / "memory.usage_in_bytes")
        names = ("total_inactive_file", "total_active_file")
        reclaimable = sum(stat.get(name, 0) for name in names)
    if text is None or not text.isdigit() or int(text) >= _UNLIMITED:
        return None, 0
    used = int(usage) if usage and usage.isdigit() else 0
    return int(text), max(0, used - reclaimable)


def _table(path: Path, scale: int = 1) -> dict[str, int]:
    """A file of "name: number ..." lines."""
    rows = (line.replace(":", " ").split() for line in (_read(path) or "").splitlines())
    return {row[0]: int(row[1]) * scale for row in rows if len(row) > 1 and row[1].isdigit()}


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None

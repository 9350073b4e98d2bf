"""Limits of the machine, read from made-up /proc and /sys trees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.errors import InvalidParameterError
from octavo.machine import cpu_quota, memory, num_cores, num_threads

GB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def meminfo(total: int, available: int) -> dict[str, str]:
    lines = f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\nMemAvailable: {available >> 10} kB"
    return {"proc/meminfo": lines}


def test_physical_memory_without_a_cgroup(tmp_path: Path) -> None:
    found = memory(tree(tmp_path, meminfo(16 * GB, 10 * GB)))
    assert (found.limit, found.available, found.source) == (16 * GB, 10 * GB, "physical memory")


def test_cgroup_v2_limit_counts_what_cannot_be_reclaimed(tmp_path: Path) -> None:
    files = meminfo(16 * GB, 10 * GB) | {
        "proc/self/cgroup": "0::/user/box",
        "sys/fs/cgroup/user/box/memory.max": "max",
        "sys/fs/cgroup/user/memory.max": str(4 * GB),
        "sys/fs/cgroup/user/memory.current": str(3 * GB),
        "sys/fs/cgroup/user/memory.stat": f"anon {GB}\ninactive_file {GB}\nactive_file {GB}",
    }
    found = memory(tree(tmp_path, files))
    assert (found.limit, found.available, found.source) == (4 * GB, 3 * GB, "cgroup")


@pytest.mark.parametrize("shown", ["/outer/container", "/"])
def test_cgroup_v1_inside_and_outside_a_container(tmp_path: Path, shown: str) -> None:
    files = meminfo(16 * GB, 10 * GB) | {
        "proc/self/cgroup": f"5:cpu,cpuacct:/\n4:memory:{shown}\n0::/",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GB),
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GB),
        "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {GB // 2}",
    }
    found = memory(tree(tmp_path, files))
    assert (found.limit, found.available) == (2 * GB, 2 * GB - GB // 2)


def test_cgroup_v1_without_a_limit(tmp_path: Path) -> None:
    files = meminfo(16 * GB, 10 * GB) | {
        "proc/self/cgroup": "4:memory:/",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert memory(tree(tmp_path, files)).limit == 16 * GB


def test_a_limit_above_physical_memory_does_not_count(tmp_path: Path) -> None:
    files = meminfo(8 * GB, 6 * GB) | {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/memory.max": str(64 * GB),
        "sys/fs/cgroup/memory.current": str(GB),
    }
    found = memory(tree(tmp_path, files))
    assert (found.limit, found.available, found.source) == (8 * GB, 6 * GB, "physical memory")


def test_quota_of_both_cgroup_versions(tmp_path: Path) -> None:
    v2 = {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "150000 100000"}
    assert cpu_quota(tree(tmp_path / "v2", v2)) == 1.5
    v1 = {
        "proc/self/cgroup": "1:cpu,cpuacct:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert cpu_quota(tree(tmp_path / "v1", v1)) == 2.0
    free = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}
    assert cpu_quota(tree(tmp_path / "free", free)) is None
    assert cpu_quota(tmp_path / "nothing") is None


def test_threads_are_cores_within_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_NUM_THREADS", raising=False)
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = {topology.format(cpu): f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    root = tree(tmp_path, files)
    assert num_cores(root, set(range(8))) == 4
    assert num_threads(0, root, set(range(8))) == 4
    assert num_threads(0, root, {0, 4}) == 1
    assert num_threads(7, root, {0}) == 7
    tree(root, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"})
    assert num_threads(0, root, set(range(8))) == 2


def test_this_machine_has_memory_and_a_core() -> None:
    found = memory()
    assert 0 < found.available <= found.limit
    assert num_threads() >= 1


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_NUM_THREADS", "3")
    assert num_threads() == 3
    assert num_threads(5) == 5
    for wrong in ("0", "-1", "two", "1.5", " 2", "\u0663", "1025", "9" * 5000):
        monkeypatch.setenv("OCTAVO_NUM_THREADS", wrong)
        with pytest.raises(InvalidParameterError, match="OCTAVO_NUM_THREADS"):
            num_threads()


def test_more_threads_than_the_system_gives_is_a_clear_error() -> None:
    with pytest.raises(InvalidParameterError, match="num_threads: got '1025'"):
        num_threads(1025)
    code = (
        "import resource; from octavo._native import Executor;"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
        "Executor(1024, 1, 1, 'int8')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert re.search(r"RuntimeError: threads: started \d+ of 1024: Resource temp", result.stderr)


@pytest.mark.parametrize("isa", ["avx9"])
def test_an_instruction_set_that_is_none_is_named(isa: str) -> None:
    code = (
        "from octavo.errors import InvalidParameterError; from octavo import LLM\n"
        "try: LLM('tests/golden/tiny/llama')\n"
        "except InvalidParameterError as error: print(error.param, error)"
    )
    env = os.environ | {"OCTAVO_ISA": isa}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert result.stdout.startswith(f"OCTAVO_ISA OCTAVO_ISA: got '{isa}'; expected ")

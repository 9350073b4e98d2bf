"""The NEON kernels, built from the same sources and compared with the scalar ones.

On an x86 machine a cross compiler builds them and qemu runs them; on an Arm machine neither is
needed. The checks themselves are native/tests/arm_kernels.cpp and its neighbours.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
ON_ARM = platform.machine() == "aarch64"
COMPILER = shutil.which("c++" if ON_ARM else "aarch64-linux-gnu-g++")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
FLAGS = (
    f"-std=c++20 -O1 -Wall -Wextra -Wno-psabi -Werror -ffp-contract=off -fno-math-errno -I{NATIVE}"
).split()
# What speaks to Python: it needs the headers of an Arm Python, which few machines have.
BINDINGS = {"module.cpp", "batch.cpp"}

pytestmark = pytest.mark.skipif(
    COMPILER is None or not (ON_ARM or QEMU),
    reason="needs a compiler and an emulator for Arm"
    " (Debian, Ubuntu: apt-get install g++-aarch64-linux-gnu qemu-user)",
)


def _is_binding(path: Path) -> bool:
    return path.stem.startswith("bind") or path.name in BINDINGS


def sources(*patterns: str) -> list[Path]:
    """The files that Arm compiles, without the bindings; sorted."""
    found = {path for pattern in patterns for path in NATIVE.glob(pattern)}
    return sorted(p for p in found if not _is_binding(p) and "_avx" not in p.name)


PROGRAM = [
    p
    for p in sources("kernels/*.cpp", "runtime/kernels*.cpp", "tests/arm_*.cpp")
    if p.name != "measure.cpp"
]


def compile_all(paths: Iterable[Path], *options: str) -> None:
    """Compiles each file with the instruction set that CMakeLists.txt gives it."""

    def one(path: Path) -> None:
        march = "armv8.2-a+dotprod" if path.stem.endswith("_neon") else "armv8-a"
        output = [o.replace("NAME", f"{path.parent.name}_{path.stem}") for o in options]
        command = [str(COMPILER), *FLAGS, f"-march={march}", *output, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, paths))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built checks; static, so that qemu needs no Arm system around them."""
    folder = tmp_path_factory.mktemp("arm")
    compile_all(PROGRAM, "-c", "-o", f"{folder}/NAME.o")
    objects = sorted(map(str, folder.glob("*.o")))
    command = [str(COMPILER), "-static", *objects, "-o", str(folder / "arm_kernels")]
    subprocess.run(command, check=True)
    return folder / "arm_kernels"


def run(program: Path, *arguments: str, cpu: str = "max", isa: str = "") -> tuple[int, str]:
    """Exit status and output of the program on a processor (of qemu's names)."""
    emulator = [] if ON_ARM else [str(QEMU), "-cpu", cpu]
    command = [*emulator, str(program), *arguments]
    environment = {**os.environ, "OCTAVO_ISA": isa}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout


def test_neon_kernels_equal_the_scalar_ones(program: Path) -> None:
    status, output = run(program)
    assert status == 0, output
    assert output.endswith(" 0 failures\n"), output


def test_the_kernels_are_lowered_by_the_environment(program: Path) -> None:
    assert run(program, "isa", isa="neon") == (0, "neon neon\n")
    assert run(program, "isa", isa="scalar") == (0, "scalar scalar\n")
    status, output = run(program, "isa", isa="avx2")
    assert status == 1
    assert output == "OCTAVO_ISA: got 'avx2'; expected neon or scalar; unset it to use the best\n"


@pytest.mark.skipif(ON_ARM, reason="needs qemu, to be an older processor")
def test_a_processor_without_dot_products_gets_the_scalar_kernels(program: Path) -> None:
    assert run(program, "isa", cpu="cortex-a53") == (0, "scalar scalar\n")
    assert run(program, "isa", cpu="cortex-a53", isa="neon") == (0, "scalar scalar\n")
    assert run(program, "isa", cpu="neoverse-n1") == (0, "neon neon\n")


def test_every_other_file_compiles_for_arm() -> None:
    others = set(sources("*/*.cpp")) - set(PROGRAM)
    assert {"executor.cpp", "sampler.cpp", "reader.cpp"} <= {p.name for p in others}
    compile_all(sorted(others), "-fsyntax-only")

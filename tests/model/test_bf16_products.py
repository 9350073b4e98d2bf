"""Answers where quantized weights are multiplied in bf16, which is decided once a process: tests of
tiny models run again in one that does, and an engine's choice is one for the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
BF16 = "from octavo import _native; print(_native.ask_for_bf16())"


def run(code: str, *arguments: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def has_bf16() -> None:
    if run(BF16) != "True\n":
        pytest.skip("products in bf16 need amx_bf16, avx512_fp16 and a compiler that knows both")


@pytest.mark.usefixtures("has_bf16")
@pytest.mark.parametrize("name", ["test_tiny_company.py", "test_golden_tiny.py"])
def test_tiny_models_answer_as_in_int8(name: str) -> None:
    """The same bits in any company, and the golden logits."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(FOLDER / name)]
    environment = {**os.environ, "OCTAVO_ISA": "amxbf16"}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout[-4000:]


CHOOSE = """
import sys
from octavo import machine
from octavo.errors import InvalidParameterError
for wanted in sys.argv[1:]:
    try:
        machine.choose_products(wanted)
        print("yes", end=" ")
    except InvalidParameterError as error:
        assert error.param == "products", error.param
        print("no", end=" ")
"""


@pytest.mark.usefixtures("has_bf16")
@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        ("bf16 bf16 auto int8", "yes yes yes no"),
        ("int8 auto bf16 int8", "yes yes no yes"),
        ("auto bf16", "yes no"),
    ],
)
def test_a_process_multiplies_in_one_way(wanted: str, granted: str) -> None:
    assert run(CHOOSE, *wanted.split()).split() == granted.split()


def test_where_there_are_no_such_tiles_it_says_so() -> None:
    code = "import os; os.environ['OCTAVO_ISA'] = 'scalar'\n" + CHOOSE
    assert run(code, "bf16", "auto").split() == ["no", "yes"]

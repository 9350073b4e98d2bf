"""Answers where quantized weights are multiplied in bf16: tests of models run again in a process
where they always are, and each engine of a process has products of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from tests.support.lora import write_adapter

FOLDER = Path(__file__).parent
BF16 = "from octavo import _native; print(_native.has_bf16_products())"


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
def test_models_answer_as_in_int8(name: str) -> None:
    """The same bits in any company, and the golden logits."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(FOLDER / name)]
    environment = {**os.environ, "OCTAVO_ISA": "amxbf16"}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout[-4000:]


ADAPTED = """
import sys
import numpy as np
from octavo import LLM, SamplingParams
rng = np.random.default_rng(1)
prompts = [rng.integers(300, 4000, n).tolist() for n in (300, 290, 70)]
greedy = SamplingParams(temperature=0, max_tokens=4, logprobs=1, ignore_eos=True)
options = {"products": "bf16", "num_threads": 2, "lora": {"some": sys.argv[1]}}
options |= {"max_num_batched_tokens": 1024, "num_kv_blocks": 64, "enable_prefix_caching": False}
with LLM("smollm2", **options) as llm:
    def outputs(prompts, names):
        found = llm.generate(prompts, greedy, lora=names, use_tqdm=False)
        return [one.outputs for one in found]
    names = ["some", "", "some"]
    alone = [outputs([p], [n])[0] for p, n in zip(prompts, names)]
    plain = outputs(prompts[:1], [""])
    assert plain[0] != alone[0]
    assert outputs(prompts, names) == alone  # one step, of rows with an adapter and without
    assert outputs(prompts[:1], [""]) == plain  # as many rows as before, without any
print("same")
"""


@pytest.mark.model
@pytest.mark.usefixtures("has_bf16")
def test_adapters_in_steps_of_many_rows(tmp_path: Path) -> None:
    """Rows are shared out among threads only where no adapter adds to results."""
    modules = {"self_attn.q_proj": (576, 576), "mlp.gate_proj": (1536, 576)}
    modules |= {"mlp.down_proj": (576, 1536)}
    layers = {f"model.layers.3.{name}": shape for name, shape in modules.items()}
    assert run(ADAPTED, str(write_adapter(tmp_path / "lora", layers))) == "same\n"


CHOOSE = """
import sys
from octavo import machine
from octavo.errors import InvalidParameterError
for wanted in sys.argv[1:]:
    try:
        print(machine.choose_products(wanted), end=" ")
    except InvalidParameterError as error:
        assert error.param == "products", error.param
        print("no", end=" ")
"""


@pytest.mark.usefixtures("has_bf16")
@pytest.mark.parametrize(
    ("isa", "granted"), [("", "mixed int8 bf16 mixed"), ("amxbf16", "bf16 no bf16 no")]
)
def test_products_that_this_machine_has(isa: str, granted: str) -> None:
    code = f"import os; os.environ['OCTAVO_ISA'] = {isa!r}\n" + CHOOSE
    assert run(code, "auto", "int8", "bf16", "mixed").split() == granted.split()


def test_where_there_are_no_such_tiles_it_says_so() -> None:
    code = "import os; os.environ['OCTAVO_ISA'] = 'scalar'\n" + CHOOSE
    assert run(code, "bf16", "mixed", "auto", "int8").split() == ["no", "no", "int8", "int8"]


@pytest.mark.model
@pytest.mark.usefixtures("has_bf16")
def test_engines_of_a_process_multiply_each_in_its_way() -> None:
    """In turn, the second beside the first. Prompts are judged as in bf16, what follows them is
    generated as in int8."""
    greedy = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
    prompt = [504, 3575, 282, 4649, 314]
    found = {}
    engines = {name: LLM("smollm2", products=name) for name in ("int8", "bf16", "mixed")}
    for _ in range(2):
        for name, llm in engines.items():
            outputs = llm.generate([prompt], greedy, use_tqdm=False)[0].outputs
            assert found.setdefault(name, outputs) == outputs
    for llm in engines.values():
        llm.close()

    def chances(name: str) -> list[float]:
        return [next(iter(of.values())).logprob for of in found[name][0].logprobs or []]

    assert chances("mixed")[0] == chances("bf16")[0] != chances("int8")[0]
    assert chances("mixed")[1] not in (chances("bf16")[1], chances("int8")[1])

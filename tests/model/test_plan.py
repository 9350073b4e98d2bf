"""`octavo plan` and what it stands on: the numbers must be those the engine itself takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo import _native
from octavo.backends.cpu.rehearsal import ExpertShape
from octavo.engine import Engine, EngineOptions
from octavo.errors import InvalidParameterError
from octavo.forecast import Load, forecast
from octavo.records import replace

ENCODERS = Path(__file__).parents[1] / "fixtures" / "encoders"
TINY = Path(__file__).parents[1] / "golden" / "tiny"
OPTIONS = EngineOptions(model=str(TINY / "llama"))
MB = 1 << 20


def plan(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", "plan", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window"])
def test_memory_is_what_the_engine_takes(family: str) -> None:
    options = EngineOptions(model=str(TINY / family), max_num_seqs=3)
    engine = Engine.from_options(replace(options, num_kv_blocks=6))
    taken = engine.plan
    engine.close()
    need = forecast(options, 3, 64, with_speed=False).memory
    assert need.weights == taken.weight_bytes
    assert need.arena == taken.arena_bytes
    assert need.kv == taken.kv_bytes  # 3 requests of 2 blocks
    assert need.program > 10 * MB
    assert need.total == need.weights + need.arena + need.kv + need.program


def test_a_smaller_batch_touches_less_of_the_arena() -> None:
    one, many = (forecast(OPTIONS, n, 64, with_speed=False).memory for n in (1, 64))
    assert one.arena < many.arena
    assert 64 * one.kv == many.kv


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "olmo2", "gpt2", "mixtral"])
def test_speed_is_rehearsed_without_the_weights(family: str) -> None:
    found = forecast(EngineOptions(model=str(TINY / family)), 4, 60, 10)
    assert found.speed is not None
    assert found.speed.ttft_s > 0
    assert found.speed.prefill_tps == pytest.approx(50 / found.speed.ttft_s)
    assert found.speed.decode_tps is not None
    assert found.speed.total_tps is not None
    assert found.speed.total_tps >= found.speed.decode_tps > 0


@pytest.mark.parametrize("encoder", ["bert", "bert-rerank", "modernbert"])
def test_a_model_that_only_reads(encoder: str) -> None:
    options = EngineOptions(model=str(ENCODERS / encoder))
    found = forecast(options, 2, 32)
    assert found.load.output == 0
    assert found.speed is not None
    assert found.speed.prefill_tps == pytest.approx(32 / found.speed.ttft_s)
    assert found.speed.decode_tps is None
    with pytest.raises(InvalidParameterError, match="output: got 4"):
        forecast(options, 2, 32, 4)


BF16_KINDS = {"mixed": {True, False}, "bf16": {True}} if _native.has_bf16_products() else {}


@pytest.mark.parametrize(("products", "kinds"), [("int8", {False}), *BF16_KINDS.items()])
def test_experts_are_timed_in_the_products_of_their_steps(
    products: str, kinds: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts and decodes of a mixture, each as it will be multiplied."""
    asked: set[bool] = set()
    measure = _native.measure_linear

    def noted(*args: Any) -> list[float]:
        asked.add(args[-1])
        return measure(*args)

    monkeypatch.setattr(_native, "measure_linear", noted)
    options = EngineOptions(str(TINY / "mixtral"), weights="int8", products=products)
    assert forecast(options, 4, 60, 10).speed is not None
    assert asked == kinds


def test_rows_meet_more_experts_the_more_they_are() -> None:
    shape = ExpertShape(0, 32, 32, False, experts=8, chosen=2)
    assert shape.shares(1) == (2.0, 1)
    met, rows = shape.shares(512)
    assert met == pytest.approx(8)
    assert rows == 128
    assert replace(shape, experts=1, chosen=1).shares(7) == (1.0, 7)


def test_a_backend_that_cannot_tell_leaves_speed_out() -> None:
    found = forecast(replace(OPTIONS, backend="reference"), 1, 64)
    assert found.speed is None
    assert found.as_dict()["speed"] is None


def test_advice_alone_makes_the_load_fit() -> None:
    for _ in range(2):  # the first one makes this process larger
        whole = forecast(OPTIONS, 8, 256, with_speed=False).memory
    short = whole.total - whole.kv // 4
    found = forecast(OPTIONS, 8, 256, available=short, with_speed=False)
    assert not found.memory.fits
    assert 1 <= found.sequences < 8
    assert found.advice[0].startswith(f"--concurrency {found.sequences}:")
    length = int(found.advice[1].split()[1].rstrip(":"))
    assert 0 < length < 256
    assert "--kv-dtype int8" in found.advice[2]
    # The process itself may have grown by some kB meanwhile.
    room = short + MB
    assert forecast(OPTIONS, found.sequences, 256, available=room, with_speed=False).memory.fits
    assert forecast(OPTIONS, 8, length, available=room, with_speed=False).memory.fits


def test_nothing_helps_where_not_even_the_program_fits() -> None:
    found = forecast(OPTIONS, 1, 64, available=MB, with_speed=False)
    assert found.sequences == 0
    assert [line.split(" more ")[1] for line in found.advice] == ["memory"]


@pytest.mark.parametrize(
    ("context", "output", "named"),
    [(100_000, None, "context"), (1, None, "context"), (64, 64, "output"), (64, 0, "output")],
)
def test_lengths_that_cannot_be(context: int, output: int | None, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named) as refused:
        Load.of(8192, 1, context, output)
    assert refused.value.param == named


def test_the_command() -> None:
    report = json.loads(plan(str(TINY / "llama"), "-c", "2", "-l", "64", "--json").stdout)
    assert report["memory"]["fits"]
    assert report["load"] == {"concurrency": 2, "context": 64, "output": 32}
    assert report["speed"]["total_tps"] > 0
    tight = plan(str(TINY / "llama"), "--memory", "1M", "--no-speed", "-l", "64")
    assert tight.returncode == 1
    assert "does not fit" in tight.stdout
    assert "more memory" in tight.stdout


def test_a_context_the_model_does_not_have() -> None:
    refused = plan(str(TINY / "llama"), "-l", "100000")
    assert refused.returncode != 0
    assert "context" in refused.stderr
    assert "Traceback" not in refused.stderr

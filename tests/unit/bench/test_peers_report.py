"""The report of benchmarks/peers: ratios pair by pair, and what is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.peers import driven
from benchmarks.peers.driven import Driven
from benchmarks.peers.ik_llama_cpp import seconds_of
from benchmarks.peers.peer import Task
from benchmarks.peers.report import Line, table, write_json


def _line() -> Line:
    """The machine slows down by half in the middle; the pairs' ratios are 2, 2, 3."""
    return Line("decode", {"Octavo": [200.0, 100.0, 150.0], "llama.cpp": [100.0, 50.0, 50.0]})


def test_ratios_are_taken_pair_by_pair():
    assert _line().ratios("llama.cpp") == [2.0, 2.0, 3.0]
    assert _line().as_dict()["ratio"] == {"llama.cpp": 2.0}


def test_table_and_json_say_the_same(tmp_path: Path):
    shown = table([_line()], ["llama.cpp", "vLLM-CPU"])
    assert "| decode | 150 (100-200) | 50 (50-100) | 2.00 (2.00-3.00) | - | - |" in shown
    path = tmp_path / "new" / "result.json"
    write_json(path, [_line()], {"model": "m", "threads": 2})
    report = json.loads(path.read_text())
    assert report["model"] == "m"
    assert report["results"][0]["ratio"] == {"llama.cpp": 2.0}


@pytest.mark.parametrize(
    ("lengths", "rate"), [((512, 1, 1), 512 / 4), ((1, 129, 1), 128 / 3), ((128, 64, 32), 2048 / 4)]
)
def test_rate_of_a_task(lengths: tuple[int, int, int], rate: float):
    """The whole run takes 4 s, its first token comes after 1 s."""
    assert Task("any", *lengths, "").rate(4.0, 1.0) == pytest.approx(rate)


_DRIVER = """
import json, sys
print("an engine prints what it likes")
print(json.dumps({"octavo_driver": {"version": "7"}}), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    error = {"error": "too many"} if task["streams"] > 2 else {"seconds": task["output_len"] / 2}
    print(json.dumps({"octavo_driver": error}), flush=True)
"""


def test_a_driver_is_asked_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "fake.py").write_text(_DRIVER)
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(driven, "DRIVERS", tmp_path)
    monkeypatch.chdir(tmp_path)
    peer = Driven("fake", "fake.py", Path(sys.executable), [], {})
    try:
        assert peer.measure(Task("decode", 1, 129, 1, "")) == pytest.approx(128 / (64.5 - 0.5))
        assert peer.measure(Task("many", 1, 4, 3, "")) is None
        assert peer.version == "7"
    finally:
        peer.close()


_IK_TABLE = """
main: n_kv_max = 6144, n_batch = 2048, flash_attn = 1, n_threads = 2, n_threads_batch = 2

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |     64 |   32 |   6144 |    3.900 |  1050.26 |   11.300 |   181.24 |   15.200 |   404.21 |
"""


def test_ik_llama_cpp_says_how_long_a_run_took_in_a_table():
    assert seconds_of(_IK_TABLE) == 15.2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n_ctx_req = 6144 is greater than n_kv_max = 512 for pp = 128, tg = 64, pl = 32",
        "\n".join(_IK_TABLE.splitlines()[:-1]),
        _IK_TABLE + _IK_TABLE.splitlines()[-1],
        _IK_TABLE.replace("T_PP s", "T_PP h"),
    ],
    ids=["nothing", "refused", "no run", "two runs", "other columns"],
)
def test_what_is_no_table_of_one_run_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a table of one run"):
        seconds_of(text)

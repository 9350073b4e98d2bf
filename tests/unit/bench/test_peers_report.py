"""The report of benchmarks/peers: ratios pair by pair, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.report import Line, table, write_json


def _line() -> Line:
    """The machine slows down by half in the middle; the pairs' ratios are 2, 2, 3."""
    return Line("decode", octavo=[200.0, 100.0, 150.0], llama_cpp=[100.0, 50.0, 50.0])


def test_ratio_is_the_median_of_pairs():
    assert _line().ratios == [2.0, 2.0, 3.0]
    assert _line().ratio == 2.0


def test_table_and_json_say_the_same(tmp_path: Path):
    assert "| decode | 150 (100-200) | 50 (50-100) | 2.00 (2.00-3.00) |" in table([_line()])
    path = tmp_path / "new" / "result.json"
    write_json(path, [_line()], {"model": "m", "threads": 2})
    report = json.loads(path.read_text())
    assert report["model"] == "m"
    assert report["results"][0]["ratio"] == 2.0

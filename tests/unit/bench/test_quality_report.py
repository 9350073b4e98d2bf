"""The report that stands Octavo beside llama.cpp, both against float32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.quality.report import Judged, table, write_json

from octavo.eval import Divergence


def _result(name: str, kl: list[float]) -> Divergence:
    nll = np.full(len(kl), np.log(8.0))
    return Divergence.of(name, np.array(kl), np.ones(len(kl)), nll + 0.1, nll)


JUDGED = Judged(
    "tiny",
    {
        "Octavo": _result("Octavo", [0.001, 0.002, 0.003]),
        "llama.cpp": _result("llama.cpp", [0.002, 0.004, 0.006]),
    },
)


def test_table_has_a_row_for_each_engine_and_the_reference():
    head, _, octavo, llama, reference = table([JUDGED]).splitlines()
    assert head.count("|") == octavo.count("|") == llama.count("|") == reference.count("|")
    assert "| Octavo | 0.00200 ± 0.00058 | 0.00200 |" in octavo
    assert "| llama.cpp | 0.00400 ± 0.00115 | 0.00400 |" in llama
    assert "8.000 ± 0.000" in reference


def test_engines_are_compared_token_by_token(tmp_path: Path):
    assert JUDGED.beyond.mean == pytest.approx(-0.002)
    write_json(tmp_path / "new" / "quality.json", [JUDGED], {"context": 512})
    report = json.loads((tmp_path / "new" / "quality.json").read_text())
    assert report["context"] == 512
    (model,) = report["models"]
    assert model["kl_octavo_minus_llama_cpp"]["mean"] == pytest.approx(-0.002)
    assert [result["name"] for result in model["results"]] == ["Octavo", "llama.cpp"]

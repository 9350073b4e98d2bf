"""Quality as `octavo.eval` measures it, on small random models and through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from octavo.eval import EngineSource, Window, divergence, open_source, perplexity, windows_of
from octavo.weights import resolve

TINY = Path(__file__).parent.parent / "golden" / "tiny"


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def folder(request: pytest.FixtureRequest) -> Path:
    return TINY / request.param


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def source(folder: Path) -> Iterator[EngineSource]:
    source = open_source(str(folder), context=96, weights="float")
    yield source
    source.close()


def test_nll_is_that_of_the_golden_logits(source: EngineSource, expected: dict[str, np.ndarray]):
    ids, logits = expected["input_ids"].tolist(), expected["logits"].astype(np.float64)
    losses = [np.logaddexp.reduce(logits[i]) - logits[i][ids[i + 1]] for i in range(len(ids) - 1)]
    got = perplexity(source, [Window(ids, 0)])
    assert got.num_tokens == len(ids) - 1
    assert got.nll.mean == pytest.approx(np.mean(losses), abs=1e-3)


def test_what_is_skipped_is_context_all_the_same(
    source: EngineSource, expected: dict[str, np.ndarray]
):
    """The engine prefills in pieces of 64 rows; a window's first scored token may fall anywhere."""
    ids = expected["input_ids"].tolist()
    whole = np.concatenate([part.copy() for part in source.logits(Window(ids, 0))])
    for first in (1, 63, 64, 65, len(ids) - 2):
        got = np.concatenate([part.copy() for part in source.logits(Window(ids, first))])
        np.testing.assert_array_equal(got, whole[first:])


def test_the_same_run_twice_does_not_diverge(
    folder: Path, source: EngineSource, expected: dict[str, np.ndarray]
):
    windows = windows_of(expected["input_ids"].tolist(), 40, skip=0)
    twin = open_source(str(folder), context=96, weights="float")
    (got,) = divergence(source, [twin], windows)
    twin.close()
    assert (got.kl_max, got.agreement.mean, got.excess.mean) == (0.0, 1.0, 0.0)


def test_a_16_bit_cache_costs_a_little(
    folder: Path, source: EngineSource, expected: dict[str, np.ndarray]
):
    windows = windows_of(expected["input_ids"].tolist(), 96, skip=0)
    coarse = open_source(str(folder), context=96, weights="float", kv_dtype="bf16")
    (got,) = divergence(source, [coarse], windows)
    coarse.close()
    assert 0 < got.kl.mean < 1e-3
    assert got.agreement.mean > 0.9


def _octavo(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", "eval", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.model
def test_commands_measure_a_real_model(tmp_path: Path):
    model, report = str(resolve("smollm2")), tmp_path / "report.json"
    common = ("--context", "128", "--tokens", "256", "--json", str(report))
    assert "perplexity" in _octavo("ppl", model, *common).stdout
    alone = json.loads(report.read_text())["result"]
    done = _octavo("kl", model, *common)
    assert "same most likely token" in done.stdout, done.stderr
    result = json.loads(report.read_text())["result"]
    assert result["num_tokens"] == alone["num_tokens"] == 2 * 63
    assert result["candidate"] == alone
    assert 0 < result["kl"]["mean"] < 0.02
    assert result["agreement"]["mean"] > 0.9


@pytest.mark.model
def test_a_context_beyond_the_model_is_refused():
    done = _octavo("ppl", str(resolve("smollm2")), "--context", "1000000")
    assert done.returncode == 1
    assert "context" in done.stderr
    assert "Traceback" not in done.stderr

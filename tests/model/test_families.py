"""Every family on a tiny random model, against logits that transformers computed in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo._native import Executor
from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import run_tokens
from octavo.models import build_graph, config_from, fit_tensors
from octavo.records import replace
from octavo.weights import open_checkpoint

FIXTURES = Path(__file__).parent.parent / "fixtures" / "families"
FAMILIES = sorted(path.name for path in FIXTURES.iterdir())
TOLERANCES = {("reference", "native"): 1e-4, ("cpu", "float"): 2e-2}
MAX_BYTES = 200_000


def compiled(family: str, backend: str, weights: str) -> Executable:
    checkpoint = open_checkpoint(FIXTURES / family)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(
        weights=weights, kv_dtype="f32", block_size=32, max_tokens=64, max_seqs=64
    )
    return get_backend(backend).compile(graph, checkpoint, config, options)


def expected(family: str) -> tuple[list[int], np.ndarray]:
    with np.load(FIXTURES / family / "expected.npz") as arrays:
        return arrays["input_ids"].tolist(), arrays["logits"]


@pytest.mark.parametrize("family", FAMILIES)
def test_fixture_is_small(family: str) -> None:
    assert sum(file.stat().st_size for file in (FIXTURES / family).iterdir()) <= MAX_BYTES


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("backend", "weights"), TOLERANCES)
def test_logits(family: str, backend: str, weights: str) -> None:
    ids, wanted = expected(family)
    executable = compiled(family, backend, weights)
    for chunk in (len(ids), 7, 1):
        logits = run_tokens(executable, ids, chunk)
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=TOLERANCES[backend, weights])


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_no_bit(family: str) -> None:
    ids, _ = expected(family)
    executable = compiled(family, "cpu", "float")
    whole = run_tokens(executable, ids, len(ids))
    for chunk in (13, 1):
        np.testing.assert_array_equal(run_tokens(executable, ids, chunk), whole)


def test_a_shorter_context_than_the_table_of_positions() -> None:
    checkpoint = open_checkpoint(FIXTURES / "opt")
    config = replace(config_from(checkpoint), context_length=32)
    assert build_graph(config, checkpoint.tensors).weights


def test_a_step_of_thousands_of_tokens() -> None:
    """Two panels of two gated products over all its rows fit a thread's memory."""
    assert Executor(1, 9000, 1, "int8").scratch_bytes >= 9000 * 2 * 2 * 16 * 4
    checkpoint = open_checkpoint(FIXTURES / "llama-bias")
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    ids = [3 + i % 90 for i in range(4500)]
    found = []
    for step in (4500, 300):
        options = BackendOptions(weights="float", max_tokens=step, max_seqs=step, num_threads=2)
        executable = get_backend("cpu").compile(graph, checkpoint, config, options)
        found.append(run_tokens(executable, ids, step))
        executable.close()
    np.testing.assert_array_equal(*found)

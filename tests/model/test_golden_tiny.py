"""Small random models of every family against logits that transformers computed in float32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import run_greedy, run_tokens
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import open_checkpoint

GOLDEN = Path(__file__).parent.parent / "golden" / "tiny"
FAMILIES = [path.name for path in sorted(GOLDEN.iterdir())]


@dataclass(frozen=True)
class Judged:
    """A backend, how it is to hold weights, and how far its logits may be off."""

    backend: str
    weights: str
    tolerance: float


JUDGED = [Judged("reference", "native", 1e-4), Judged("cpu", "float", 2e-2)]


@pytest.fixture(params=JUDGED, ids=lambda j: f"{j.backend}-{j.weights}")
def judged(request: pytest.FixtureRequest) -> Judged:
    return request.param


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def expected(family: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / family / "expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def executable(family: str, judged: Judged) -> Executable:
    checkpoint = open_checkpoint(GOLDEN / family)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(
        weights=judged.weights, kv_dtype="f32", block_size=32, max_tokens=96, max_seqs=96
    )
    return get_backend(judged.backend).compile(graph, checkpoint, config, options)


@pytest.mark.parametrize("chunk", [96, 29, 1], ids=["whole", "chunks", "single-tokens"])
def test_logits(
    executable: Executable, expected: dict[str, np.ndarray], judged: Judged, chunk: int
) -> None:
    logits = run_tokens(executable, expected["input_ids"].tolist(), chunk)
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=judged.tolerance)


def test_prompt_logits(
    executable: Executable, expected: dict[str, np.ndarray], judged: Judged
) -> None:
    logits = run_tokens(executable, expected["prompt_ids"].tolist(), 96)
    np.testing.assert_allclose(logits, expected["prompt_logits"], rtol=0, atol=judged.tolerance)


def test_greedy_ids(executable: Executable, expected: dict[str, np.ndarray]) -> None:
    wanted = expected["greedy_ids"].tolist()
    assert run_greedy(executable, expected["prompt_ids"].tolist(), len(wanted)) == wanted

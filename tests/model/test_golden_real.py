"""The demo models against what transformers computed from the same files in float32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import PagedSequences, run_greedy
from octavo.models import build_graph, config_from
from octavo.weights import open_checkpoint, resolve

GOLDEN = Path(__file__).parents[1] / "golden" / "real"
FILES = {
    "smollm2": "smollm2-135m-instruct",
    "gemma3-270m": "gemma3-270m",
    "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b-instruct",
}
CHUNK = 128

pytestmark = pytest.mark.model


@dataclass(frozen=True)
class Judged:
    """A model on a backend with a KV cache of a type.

    nll: largest error of the mean negative log-likelihood per token. logprob: largest mean error of
    a prompt's log-probabilities. margin: a smaller distance between the two best logits may be
    decided by rounding. The largest model would keep the reference busy for minutes, so it is
    judged on the CPU backend only.
    """

    model: str
    backend: str
    nll: float
    logprob: float
    kv_dtype: str = "auto"
    margin: float = 0.25


JUDGED = [
    Judged("smollm2", "reference", nll=1e-3, logprob=5e-4),
    Judged("gemma3-270m", "reference", nll=1e-3, logprob=5e-4),
    Judged("smollm2", "cpu", nll=0.02, logprob=0.2),
    Judged("gemma3-270m", "cpu", nll=0.02, logprob=0.2),
    Judged("qwen2.5-coder-1.5b", "cpu", nll=0.02, logprob=0.2),
    Judged("smollm2", "cpu", nll=0.02, logprob=0.2, kv_dtype="int8", margin=0.5),
    Judged("gemma3-270m", "cpu", nll=0.02, logprob=0.2, kv_dtype="int8", margin=0.5),
    Judged("qwen2.5-coder-1.5b", "cpu", nll=0.02, logprob=0.2, kv_dtype="int8", margin=0.5),
    Judged("smollm2", "cpu", nll=0.03, logprob=0.4, kv_dtype="int4", margin=1.5),
]


def name_of(judged: Judged) -> str:
    kv = "" if judged.kv_dtype == "auto" else f"-{judged.kv_dtype}"
    return f"{judged.backend}-{judged.model}{kv}"


@pytest.fixture(scope="module", params=JUDGED, ids=name_of)
def judged(request: pytest.FixtureRequest) -> Judged:
    return request.param


@pytest.fixture(scope="module")
def golden(judged: Judged) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{FILES[judged.model]}.json").read_text())


@pytest.fixture(scope="module")
def executable(judged: Judged) -> Iterator[Executable]:
    checkpoint = open_checkpoint(resolve(judged.model))
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(kv_dtype=judged.kv_dtype, max_tokens=CHUNK, max_seqs=CHUNK)
    executable = get_backend(judged.backend).compile(graph, checkpoint, config, options)
    yield executable
    executable.close()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64))


def next_logprobs(executable: Executable, ids: list[int]) -> np.ndarray:
    """Log-probability of ids[1:], each given all ids before it."""
    blocks = -(-len(ids) // executable.block_size)
    executable.allocate_kv(blocks)
    paged = PagedSequences(executable.block_size, blocks)
    paged.open()
    parts = []
    for start in range(0, len(ids) - 1, CHUNK):
        part = ids[start : min(start + CHUNK, len(ids) - 1)]
        logprobs = log_softmax(executable.forward(paged.step({0: part})))
        following = ids[start + 1 : start + 1 + len(part)]
        parts.append(logprobs[np.arange(len(part)), following])
    return np.concatenate(parts)


def test_mean_negative_log_likelihood(
    executable: Executable, golden: dict[str, Any], judged: Judged
) -> None:
    given = golden["perplexity"]
    nll = -float(next_logprobs(executable, given["ids"]).mean())
    assert nll == pytest.approx(given["nll_per_token"], abs=judged.nll)


def test_prompt_logprobs(executable: Executable, golden: dict[str, Any], judged: Judged) -> None:
    for case in golden["cases"]:
        got = next_logprobs(executable, case["prompt_ids"])
        error = float(np.abs(got - case["prompt_logprobs"]).mean())
        assert error <= judged.logprob, case["prompt"]


def test_greedy_ids_until_the_first_narrow_choice(
    executable: Executable, golden: dict[str, Any], judged: Judged
) -> None:
    compared = 0
    for case in golden["cases"]:
        margins = case["greedy_margins"]
        clear = next((i for i, m in enumerate(margins) if m <= judged.margin), len(margins))
        got = run_greedy(executable, case["prompt_ids"], clear)
        assert got == case["greedy_ids"][:clear], case["prompt"]
        compared += clear
    assert compared > 20

"""Latent attention and mixtures of experts in company: the same ids and logprobs however requests
are batched, cut into chunks, found in the prefix cache or preempted, on any number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.engine import RequestOutput

GOLDEN = Path(__file__).parent.parent / "golden" / "tiny"
MODELS = [
    ("deepseek-v3-mla", "f32"),
    ("deepseek-v3-mla", "bf16"),
    ("mixtral", "f32"),
    ("gpt-oss", "bf16"),
]
"""With the type of the KV cache."""
COMPANIES: dict[str, dict[str, Any]] = {
    "batched": {"max_num_seqs": 16, "num_threads": 2},
    "small-chunks": {"max_num_seqs": 16, "max_num_batched_tokens": 19, "num_threads": 1},
    "preempted": {"max_num_seqs": 8, "num_kv_blocks": 14, "enable_prefix_caching": False},
}


def prompts() -> list[list[int]]:
    """Three that share 70 tokens, one that is long and some that are short."""
    rng = np.random.default_rng(3)
    shared, long = rng.integers(3, 320, 70), rng.integers(3, 320, 300)
    tails = [rng.integers(3, 320, n) for n in (5, 1, 33)]
    found = [np.concatenate([shared, tail]) for tail in tails] + [long, long[:7], long[:1]]
    return [ids.tolist() for ids in found]


def run(model: tuple[str, str], rounds: int = 1, **options: Any) -> list[RequestOutput]:
    params = SamplingParams(temperature=0, max_tokens=20, logprobs=2, ignore_eos=True)
    name, kv_dtype = model
    with LLM(str(GOLDEN / name), weights="float", kv_dtype=kv_dtype, **options) as llm:
        for _ in range(rounds):
            found = llm.generate(prompts(), params)
    return found


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def model(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def alone(model: tuple[str, str]) -> list[RequestOutput]:
    return run(model, max_num_seqs=1, enable_prefix_caching=False, num_threads=2)


@pytest.mark.parametrize("company", COMPANIES)
def test_bits_are_equal(company: str, model: tuple[str, str], alone: list[RequestOutput]) -> None:
    found = run(model, **COMPANIES[company])
    assert [one.outputs for one in found] == [one.outputs for one in alone]


def test_bits_are_equal_from_the_prefix_cache(
    model: tuple[str, str], alone: list[RequestOutput]
) -> None:
    found = run(model, rounds=2, max_num_seqs=4)
    assert [one.outputs for one in found] == [one.outputs for one in alone]

"""SamplingParams refuses what it cannot honour, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.decoding import SamplingParams, SamplingRow, build_batch, sample_seed
from octavo.errors import InvalidParameterError

NAN, INF = float("nan"), float("inf")

BAD: list[tuple[str, Any]] = [
    *(("n", v) for v in (0, -1, 129, True, 1.0, "1", None)),
    *(("max_tokens", v) for v in (0, -1, 2**31, True, 2.5, "16", NAN)),
    *(("min_tokens", v) for v in (-1, 17, False, None, 1.5)),
    *(("temperature", v) for v in (-0.1, NAN, INF, -INF, True, "hot", None, [1], 10**400)),
    *(("top_k", v) for v in (-2, 1.5, True, "x", None, 2**31)),
    *(("top_p", v) for v in (0, 0.0, -0.5, 1.01, NAN, True, None, "0.5")),
    *(("min_p", v) for v in (-0.1, 1.1, NAN, None)),
    *(("repetition_penalty", v) for v in (0, -1, NAN, INF, None)),
    *(("presence_penalty", v) for v in (-2.1, 2.1, NAN, True)),
    *(("frequency_penalty", v) for v in (-2.1, 2.1, NAN, "0")),
    *(("seed", v) for v in (2**64, -(2**63) - 1, 1.0, True, "1")),
    *(("logprobs", v) for v in (-1, 1025, True, 1.0)),
    *(("prompt_logprobs", v) for v in (-1, 1025, True, "2")),
    *(("stop", v) for v in ("", [""], [1], 5, None, ["x"] * 65, ["y" * 1025], {"a": 1})),
    *(("stop_token_ids", v) for v in ("12", 3, None, [-1], [True], [1.0], [2**31], [1] * 1025)),
    *(("allowed_token_ids", v) for v in ("12", 3, [], [-1], [True], range(65537))),
    *(("bad_words", v) for v in ("", [""], [1], 5, None, ["x"] * 257, ["y" * 1025])),
    *(("repetition_detection", v) for v in (3, {"max_pattern_size": 2})),
    *(("grammar", v) for v in ("json", {}, True)),
    ("spaces_between_special_tokens", False),
    *(("logit_bias", v) for v in ([1], None, "x", {-1: 0}, {"5": 1}, {5: NAN}, {5: 101}, {5: "a"})),
    ("logit_bias", dict.fromkeys(range(4097), 0.0)),
    *((f, v) for f in ("ignore_eos", "detokenize") for v in (1, 0, None, "true")),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda v: repr(v)[:30])
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert str(caught.value).startswith(f"{name}: ")
    assert len(str(caught.value)) < 200


def test_values_are_normalised() -> None:
    params = SamplingParams(
        stop="END", stop_token_ids=[1, 2], temperature=1, top_k=np.int64(4), seed=-1
    )
    assert params.stop == ("END",)
    assert params.stop_token_ids == (1, 2)
    assert isinstance(params.temperature, float)
    assert type(params.top_k) is int
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_edges_that_are_allowed() -> None:
    SamplingParams(max_tokens=0, prompt_logprobs=0)
    SamplingParams(max_tokens=None, min_tokens=50, top_k=-1, logprobs=0, seed=2**64 - 1)
    SamplingParams(top_p=1, min_p=1, temperature=0)
    with pytest.raises(InvalidParameterError, match="detokenize"):
        SamplingParams(stop="x", detokenize=False)


def test_check_vocab_names_the_field() -> None:
    SamplingParams(logit_bias={9: 1.0}, stop_token_ids=(9,)).check_vocab(10)
    with pytest.raises(InvalidParameterError, match="logit_bias: got 10"):
        SamplingParams(logit_bias={10: 1.0}).check_vocab(10)
    with pytest.raises(InvalidParameterError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=(10,)).check_vocab(10)


def test_batches_copy_history_only_where_it_matters() -> None:
    plain = SamplingRow(SamplingParams(), 1, [5] * 9, [6])
    repeat = SamplingRow(SamplingParams(repetition_penalty=1.1), 2, [1, 2], [3], [7])
    batch = build_batch([plain, repeat, plain])
    assert batch.history.tolist() == [1, 2, 3]
    assert batch.history_start.tolist() == [0, 0, 3, 3]
    assert batch.prompt_count.tolist() == [0, 2, 0]
    assert batch.counter.tolist() == [1, 1, 1]
    assert batch.banned_start.tolist() == [0, 0, 1, 1]


def test_sample_seeds_differ_and_wrap() -> None:
    seeds = {sample_seed(-1, i) for i in range(100)}
    assert len(seeds) == 100
    assert all(0 <= s < 2**64 for s in seeds)
    assert sample_seed(42, 0) == 42

"""The arithmetic of benchmark results, on runs whose numbers are known."""

from __future__ import annotations

import pytest

from octavo.bench import EngineResult, Run, Summary, Workload, percentile


def _run(scale: float = 1.0) -> Run:
    """Two requests of 10 prompt tokens: prefill ends at 2 s, then 4 tokens until 4 s."""
    times = [[1.0, 3.0, 4.0], [2.0, 3.0, 4.0]]
    return Run(Workload(10, 3, 2), [[t * scale for t in ts] for ts in times], 4.0 * scale)


def test_definitions():
    run = _run()
    assert run.ttft_s == [1.0, 2.0]
    assert sorted(run.inter_token_s) == [1.0, 1.0, 1.0, 2.0]
    assert run.prefill_tps == 20 / 2.0
    assert run.decode_tps == 4 / 2.0
    assert run.output_tps == 6 / 4.0
    assert run.total_tps == 26 / 4.0


def test_one_token_answers_have_no_decode():
    run = Run(Workload(10, 1, 1), [[2.0]], 2.0)
    assert run.decode_tps is None
    result = EngineResult.of([run])
    assert result.decode_tps is None
    assert result.inter_token_p99_s is None


def test_median_and_spread_over_repetitions():
    result = EngineResult.of([_run(1.0), _run(2.0), _run(4.0)])
    assert result.prefill_tps == Summary(5.0, 2.5, 10.0)
    assert result.prefill_tps.spread == 1.5
    assert result.as_dict()["workload"] == {
        "input_len": 10,
        "output_len": 3,
        "concurrency": 2,
        "seed": 0,
    }


@pytest.mark.parametrize(("percent", "value"), [(50, 5), (90, 9), (99, 10), (100, 10), (0, 1)])
def test_percentile_is_a_value_that_occurred(percent, value):
    assert percentile(list(range(10, 0, -1)), percent) == value

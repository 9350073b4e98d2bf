"""Log-probabilities and divergences against plain loops in Python's own arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.eval import Divergence, Estimate, kl_divergence, log_softmax


def _logits(seed: int, rows: int = 6, vocab: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 4, (rows, vocab)).astype(np.float32)


def _plain_log_softmax(row: list[float]) -> list[float]:
    total = math.fsum(math.exp(x - max(row)) for x in row)
    return [x - max(row) - math.log(total) for x in row]


def test_log_softmax_is_the_plain_computation():
    logits = _logits(0)
    expected = [_plain_log_softmax(row) for row in logits.tolist()]
    np.testing.assert_allclose(log_softmax(logits), expected, rtol=1e-14, atol=1e-14)


def test_log_softmax_of_huge_logits_stays_finite():
    got = log_softmax(np.array([[3e38, -3e38, 3e38]], np.float32))
    np.testing.assert_allclose(np.exp(got), [[0.5, 0.0, 0.5]], rtol=1e-15)


def test_kl_is_the_plain_computation():
    p, q = log_softmax(_logits(1)), log_softmax(_logits(2))
    expected = [
        math.fsum(math.exp(a) * (a - b) for a, b in zip(x, y, strict=True))
        for x, y in zip(p.tolist(), q.tolist(), strict=True)
    ]
    np.testing.assert_allclose(kl_divergence(p, q), expected, rtol=1e-12)
    assert (kl_divergence(p, q) > 0).all()


def test_kl_of_a_distribution_with_itself_is_zero_and_ignores_a_shift_of_logits():
    logits = _logits(3)
    p = log_softmax(logits)
    assert kl_divergence(p, p).tolist() == [0.0] * len(p)
    np.testing.assert_allclose(kl_divergence(p, log_softmax(logits + 8)), 0, atol=1e-6)


def test_kl_of_two_coins():
    fair, loaded = np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert kl_divergence(fair, loaded)[0] == pytest.approx(expected, rel=1e-14)


def test_estimate_is_mean_and_standard_error():
    assert Estimate.of(np.array([1.0, 2.0, 3.0, 6.0])).mean == 3.0
    assert Estimate.of(np.array([1.0, 2.0, 3.0, 6.0])).stderr == pytest.approx(
        math.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    )
    assert Estimate.of(np.array([5.0])).stderr == math.inf


def _divergence(name: str, kl: list[float]) -> Divergence:
    ones = np.ones(len(kl))
    return Divergence.of(name, np.array(kl), ones, 2 * ones, ones)


def test_two_candidates_are_compared_token_by_token():
    worse, better = _divergence("a", [0.3, 0.5, 0.7]), _divergence("b", [0.2, 0.4, 0.6])
    assert worse.kl_beyond(better).mean == pytest.approx(0.1)
    assert worse.kl_beyond(better).stderr == pytest.approx(0, abs=1e-15)
    assert worse.kl.stderr > 0.1


def test_report_is_plain_data():
    report = _divergence("a", [0.3, 0.5, 0.7]).as_dict()
    assert report["kl"] == {"mean": pytest.approx(0.5), "stderr": pytest.approx(0.11547005)}
    assert report["kl_median"] == 0.5
    assert report["excess"] == {"mean": 1.0, "stderr": 0.0}
    assert "token_kl" not in report

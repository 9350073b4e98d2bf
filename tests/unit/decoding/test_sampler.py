"""The native sampler against its plain twin, and its promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo import _native
from octavo.decoding import (
    SampleResult,
    SamplingParams,
    SamplingRow,
    build_batch,
    sample_batch,
    sample_seed,
)
from tests.unit.decoding.sampler_twin import adjusted, draw, log_softmax, philox, weights

# Sizes around one block of 64, below and above; and the largest real vocabulary.
VOCABS = [1, 2, 31, 63, 64, 65, 127, 1000, 4097]


def make_row(seed: int = 0, prompt: Any = (), output: Any = (), banned: Any = (), **params: Any):
    return SamplingRow(SamplingParams(**params), seed, prompt, output, banned)


def run(logits: Any, rows: list[SamplingRow], mask: Any = None, threads: int = 1) -> SampleResult:
    return sample_batch(np.asarray(logits, np.float32), build_batch(rows, mask), threads)


def random_logits(rng: np.random.Generator, rows: int, vocab: int, scale: float = 3.0) -> Any:
    return (rng.standard_normal((rows, vocab)) * scale).astype(np.float32)


def words_of(allowed: Any) -> Any:
    """Boolean [R, V] to uint32 bit words [R, ceil(V / 32)]."""
    rows, vocab = allowed.shape
    padded = np.zeros((rows, -(-vocab // 32) * 32), bool)
    padded[:, :vocab] = allowed
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def test_philox_known_answers() -> None:
    """The vector published with Random123 for zeros; the twin agrees elsewhere."""
    assert _native.philox_uniform(0, 0) == (0xE169C58D6627E8D5 >> 11) * 2.0**-53
    for seed in (1, 2**32 - 1, 2**63 + 5, 2**64 - 1):
        for counter in (0, 1, 7, 2**31 - 1):
            assert _native.philox_uniform(seed, counter) == philox(seed, counter)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.3},
        {"temperature": 2.0, "top_k": 5},
        {"temperature": 1.0, "top_k": 200},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.0, "top_p": 0.999},
        {"temperature": 1.0, "top_p": 1e-6},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 3.0, "top_k": 90, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 0.0, "repetition_penalty": 1.7},
        {"temperature": 1.0, "repetition_penalty": 0.6, "top_k": 10},
        {"temperature": 1.0, "presence_penalty": 1.5, "frequency_penalty": -0.7, "top_p": 0.7},
    ],
    ids=str,
)
def test_every_rule_agrees_with_the_twin(vocab: int, params: dict[str, Any]) -> None:
    rng = np.random.default_rng(vocab)
    logits = random_logits(rng, 24, vocab)
    rows = [
        make_row(
            seed=1000 + r,
            prompt=rng.integers(0, vocab, 6).tolist(),
            output=rng.integers(0, vocab, r % 9).tolist(),
            banned=[r % vocab] if r % 3 and vocab > 2 else [],
            logit_bias={r % vocab: 2.5, (r * 7) % vocab: -4.0} if r % 2 else {},
            **params,
        )
        for r in range(24)
    ]
    expected = [draw(adjusted(x, row), row) for x, row in zip(logits, rows, strict=True)]
    assert run(logits, rows).ids.tolist() == expected


@pytest.mark.parametrize("scale", [0.0, 0.3, 4.0], ids=["equal", "flat", "peaked"])
@pytest.mark.parametrize("params", [{"top_p": 0.95}, {"top_p": 0.3}, {"top_k": 3000}], ids=str)
def test_large_vocabularies_agree_with_the_twin(scale: float, params: dict[str, Any]) -> None:
    logits = random_logits(np.random.default_rng(8), 4, 50_001, scale)
    rows = [make_row(seed=r, **params) for r in range(4)]
    expected = [draw(x.astype(np.float64), row) for x, row in zip(logits, rows, strict=True)]
    assert run(logits, rows).ids.tolist() == expected


def test_mask_allows_only_its_bits() -> None:
    rng = np.random.default_rng(3)
    allowed = rng.random((16, 77)) < 0.2
    allowed[:, 76] = True
    logits = random_logits(rng, 16, 77)
    rows = [make_row(seed=r, temperature=0.0 if r % 2 else 1.0) for r in range(16)]
    expected = [
        draw(adjusted(x, row, ok), row) for x, row, ok in zip(logits, rows, allowed, strict=True)
    ]
    assert run(logits, rows, words_of(allowed)).ids.tolist() == expected


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.7, "top_k": 12}, {"top_p": 0.6}, {"min_p": 0.2}, {"temperature": 4.0}],
    ids=str,
)
def test_draws_follow_the_distribution(params: dict[str, Any]) -> None:
    """Chi-square of 20,000 draws with fixed seeds against the twin's probabilities."""
    logits = random_logits(np.random.default_rng(5), 1, 40, 1.5)[0]
    count = 20_000
    rows = [make_row(seed=sample_seed(99, i), **params) for i in range(count)]
    ids = run(np.tile(logits, (count, 1)), rows).ids
    w = weights(logits.astype(np.float64), rows[0])
    expected = w / w.sum() * count
    seen = np.bincount(ids, minlength=40)
    assert not seen[expected == 0].any()
    kept = expected > 0
    chi2 = ((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    freedom = kept.sum() - 1
    assert chi2 < freedom + 4 * np.sqrt(2 * freedom)


def test_counters_of_one_seed_are_independent_draws() -> None:
    """Successive positions of one seed fill 16 equal bins evenly."""
    uniforms = np.array([_native.philox_uniform(7, c) for c in range(16_000)])
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    seen = np.bincount((uniforms * 16).astype(int), minlength=16)
    assert ((seen - 1000) ** 2 / 1000).sum() < 15 + 4 * np.sqrt(30)
    assert abs(np.corrcoef(uniforms[:-1], uniforms[1:])[0, 1]) < 0.03


def mixed_rows(rng: np.random.Generator, count: int, vocab: int) -> list[SamplingRow]:
    choices: list[dict[str, Any]] = [
        {"temperature": 0.0, "logprobs": 3},
        {"logprobs": 0},
        {"top_k": 20, "logprobs": 20},
        {"top_p": 0.9},
        {"temperature": 1.8, "repetition_penalty": 1.2, "logprobs": 5},
        {"min_p": 0.05, "frequency_penalty": 0.4},
    ]
    return [
        make_row(
            seed=r, prompt=rng.integers(0, vocab, 50).tolist(), output=[1, 2, 1], **choices[r % 6]
        )
        for r in range(count)
    ]


def test_a_row_has_the_same_bits_in_any_company() -> None:
    """Alone, in any batch, serially and in parallel: ids and logprobs bit-equal."""
    rng = np.random.default_rng(11)
    logits = random_logits(rng, 30, 5000)
    rows = mixed_rows(rng, 30, 5000)
    whole = run(logits, rows)
    for threads in (2, 4):
        parallel = run(logits, rows, threads=threads)
        for name in whole.__struct_fields__:
            assert np.array_equal(getattr(whole, name), getattr(parallel, name)), name
    for r in range(30):
        alone = run(logits[r : r + 1], [rows[r]])
        n = alone.top_ids.shape[1]
        assert alone.ids[0] == whole.ids[r]
        assert alone.logprobs[0] == whole.logprobs[r]
        assert alone.ranks[0] == whole.ranks[r]
        assert np.array_equal(alone.top_ids[0], whole.top_ids[r, :n])
        assert np.array_equal(alone.top_logprobs[0], whole.top_logprobs[r, :n])


def test_a_row_that_many_threads_look_at_has_the_same_bits() -> None:
    """Fewer rows than threads: pieces of a row are weighed beside each other."""
    rng = np.random.default_rng(7)
    vocab = 40_000  # three pieces, the last one short
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9},
        {"temperature": 0.9, "top_p": 0.95},
        {"temperature": 2.0, "top_p": 0.99, "min_p": 1e-5},
        {"temperature": 0.9, "top_k": 40, "top_p": 0.9},
        {"temperature": 0.9, "top_p": 0.95, "repetition_penalty": 1.3},
    ]
    logits = random_logits(rng, len(settings), vocab)
    logits[3, 16_384:32_768] = -np.inf  # a piece without a token
    rows = [make_row(3, [1, 2], [5, 6], logprobs=2, **params) for params in settings]
    alone = run(logits, rows)
    for threads in (len(rows) + 1, 2 * len(rows)):
        together = run(logits, rows, threads=threads)
        for name in ("ids", "logprobs", "ranks", "top_ids", "top_logprobs"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(together, name))
    broken = logits[:1].copy()
    broken[0, -1] = np.nan
    for threads in (1, 2):
        assert "NaN" in (run(broken, rows[:1], threads=threads).error(0) or "")


@pytest.mark.parametrize("vocab", [1, 3, 64, 65, 4096, 100_000])
def test_logprobs_are_those_of_the_raw_logits(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    logits = random_logits(rng, 6, vocab, 6.0)
    rows = [make_row(seed=r, logprobs=5, temperature=3.0, logit_bias={0: 5}) for r in range(6)]
    result = run(logits, rows)
    for r in range(6):
        exact = log_softmax(logits[r])
        order = np.lexsort((np.arange(vocab), -logits[r]))
        assert abs(result.logprobs[r] - exact[result.ids[r]]) < 2e-6 * max(1, -exact.min())
        assert order[result.ranks[r] - 1] == result.ids[r]
        n = min(5, vocab)
        assert result.top_ids[r, :n].tolist() == order[:n].tolist()
        np.testing.assert_allclose(result.top_logprobs[r, :n], exact[order[:n]], atol=1e-5)


def test_listed_logprobs_are_those_of_the_raw_logits() -> None:
    logits = random_logits(np.random.default_rng(2), 4, 5000, 6.0)
    listed = [(), (4999, 0, 17), (3,), ()]
    rows = [
        make_row(logprobs=3, logprob_token_ids=ids, temperature=2.0, logit_bias={0: 5})
        for ids in listed
    ]
    result = run(logits, rows)
    assert result.listed_logprobs.shape == (4, 3)
    assert result.top_ids[1].tolist() == [-1, -1, -1]  # in place of the best
    assert (result.top_ids[[0, 3]] >= 0).all()
    for r, ids in enumerate(listed):
        exact = log_softmax(logits[r])[list(ids)]
        np.testing.assert_allclose(result.listed_logprobs[r, : len(ids)], exact, atol=1e-5)
        assert np.isneginf(result.listed_logprobs[r, len(ids) :]).all()
        alone = run(logits[r : r + 1], [rows[r]])
        assert alone.ids[0] == result.ids[r]
        assert np.array_equal(alone.listed_logprobs[0], result.listed_logprobs[r, : len(ids)])


def test_a_listed_id_outside_the_vocabulary_hurts_its_row_only() -> None:
    logits = random_logits(np.random.default_rng(2), 3, 10)
    rows = [make_row(logprobs=0, logprob_token_ids=ids) for ids in ((9,), (10,), (0,))]
    result = run(logits, rows)
    assert result.error(1) is not None
    assert "listed" in result.error(1)
    assert np.isneginf(result.listed_logprobs[1]).all()
    assert [result.error(r) for r in (0, 2)] == [None, None]


def test_logprobs_are_given_only_where_asked() -> None:
    logits = random_logits(np.random.default_rng(0), 2, 10)
    result = run(logits, [make_row(), make_row(logprobs=2)])
    assert result.logprobs[0] == 0
    assert result.ranks[0] == 0
    assert result.top_ids[0].tolist() == [-1, -1]
    assert np.isneginf(result.top_logprobs[0]).all()
    assert result.top_ids.shape == (2, 2)


class TestTies:
    """Equal logits are ordered by id."""

    flat = np.zeros((1, 300), np.float32)

    def test_greedy_takes_the_lowest_id(self) -> None:
        assert run(self.flat, [make_row(temperature=0.0)]).ids[0] == 0

    def test_top_k_keeps_exactly_k(self) -> None:
        rows = [make_row(seed=s, top_k=3) for s in range(200)]
        ids = run(np.repeat(self.flat, 200, 0), rows).ids
        assert sorted(set(ids.tolist())) == [0, 1, 2]

    def test_top_p_keeps_the_shortest_prefix(self) -> None:
        rows = [make_row(seed=s, top_p=0.0099) for s in range(300)]
        ids = run(np.repeat(self.flat, 300, 0), rows).ids
        assert sorted(set(ids.tolist())) == [0, 1, 2]

    def test_top_logprobs_and_rank(self) -> None:
        result = run(self.flat, [make_row(temperature=0.0, logprobs=4)])
        assert result.top_ids[0].tolist() == [0, 1, 2, 3]
        assert result.ranks[0] == 1


class TestExtremes:
    def test_top_k_beyond_the_vocabulary_is_off(self) -> None:
        logits = random_logits(np.random.default_rng(1), 8, 50)
        far = run(logits, [make_row(seed=r, top_k=2**31 - 1) for r in range(8)])
        off = run(logits, [make_row(seed=r) for r in range(8)])
        assert far.ids.tolist() == off.ids.tolist()

    @pytest.mark.parametrize("params", [{"top_p": 1e-30}, {"top_k": 1}, {"min_p": 1.0}])
    def test_narrowest_cut_is_greedy(self, params: dict[str, Any]) -> None:
        logits = random_logits(np.random.default_rng(2), 20, 700)
        rows = [make_row(seed=r, **params) for r in range(20)]
        assert run(logits, rows).ids.tolist() == logits.argmax(1).tolist()

    @pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-6, 1e6])
    def test_any_temperature_gives_a_token(self, temperature: float) -> None:
        logits = random_logits(np.random.default_rng(2), 20, 700)
        ids = run(logits, [make_row(seed=r, temperature=temperature) for r in range(20)]).ids
        assert ((ids >= 0) & (ids < 700)).all()
        if temperature < 1e-5:
            assert ids.tolist() == logits.argmax(1).tolist()

    @pytest.mark.parametrize("params", [{"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.5}])
    def test_huge_and_minus_infinite_logits(self, params: dict[str, Any]) -> None:
        logits = np.full((1, 200), -np.inf, np.float32)
        logits[0, 150], logits[0, 20] = 3e38, -3e38
        result = run(logits, [make_row(logprobs=2, **params)])
        assert result.ids[0] == 150
        assert result.logprobs[0] == 0.0
        assert not np.isnan(result.top_logprobs).any()

    def test_callers_logits_are_not_changed(self) -> None:
        logits = random_logits(np.random.default_rng(4), 3, 100)
        before = logits.copy()
        run(logits, [make_row(prompt=[1], output=[2], banned=[3], repetition_penalty=2.0)] * 3)
        assert np.array_equal(before, logits)

    def test_no_rows(self) -> None:
        assert run(np.zeros((0, 5)), []).ids.shape == (0,)


class TestBadRows:
    """A row that cannot be sampled says so and hurts no other."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("place", [0, 63, 64, 99])
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_not_finite(self, bad: float, place: int, temperature: float) -> None:
        logits = np.zeros((3, 100), np.float32)
        logits[1, place] = bad
        result = run(logits, [make_row(temperature=temperature, logprobs=1)] * 3)
        assert "NaN" in (result.error(1) or "")
        assert result.ids[0] >= 0
        assert result.ids[2] == result.ids[0]
        assert result.error(0) is None

    def test_nothing_allowed(self) -> None:
        logits = np.zeros((3, 40), np.float32)
        logits[0] = -np.inf
        rows = [make_row(), make_row(banned=range(40)), make_row()]
        mask = np.ones((3, 40), bool)
        mask[2] = False
        result = run(logits, rows, words_of(mask))
        assert all("no token is allowed" in (result.error(r) or "") for r in range(3))

    @pytest.mark.parametrize("token", [-1, 40, 2**31 - 1])
    def test_foreign_ids(self, token: int) -> None:
        rows = [
            make_row(banned=[token]),
            make_row(output=[token], presence_penalty=1.0),
            make_row(prompt=[3, token, 5], repetition_penalty=1.1),
            make_row(temperature=0.0, repetition_penalty=2.0, prompt=[3], logit_bias={4: 1.0}),
        ]
        result = run(np.zeros((4, 40), np.float32), rows)
        assert all("outside the vocabulary" in (result.error(r) or "") for r in range(3))
        assert result.ids[3] == 4  # marks of the failed rows did not stay behind

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", np.array([np.nan], np.float32)),
            ("temperature", np.array([-1], np.float32)),
            ("top_p", np.array([0], np.float32)),
            ("min_p", np.array([1.5], np.float32)),
            ("repetition_penalty", np.array([0], np.float32)),
            ("bias_start", np.array([0, 7], np.int32)),
            ("history_start", np.array([1, 0], np.int32)),
            ("banned_start", np.array([0], np.int32)),
            ("prompt_count", np.array([4], np.int32)),
            ("seed", np.array([1, 2], np.uint64)),
            ("mask", np.zeros((1, 5), np.uint32)),
            ("top_k", "five"),
        ],
    )
    def test_malformed_batches_are_refused_by_name(self, name: str, value: Any) -> None:
        batch = build_batch([make_row()])
        setattr(batch, name, value)
        with pytest.raises(ValueError, match=f"sampler: {name}"):
            sample_batch(np.zeros((1, 40), np.float32), batch)

    def test_row_count_must_match(self) -> None:
        with pytest.raises(ValueError, match="logits"):
            sample_batch(np.zeros((2, 40), np.float32), build_batch([make_row()]))

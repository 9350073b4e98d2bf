"""Evaluations over scripted sources: pieces of any size, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octavo.errors import BackendError, InvalidParameterError
from octavo.eval import Window, divergence, log_softmax, perplexity, windows_of
from octavo.eval import run as run_module

VOCAB = 50
IDS = np.random.default_rng(7).integers(0, VOCAB, 64).tolist()


class Scripted:
    """Random but repeatable logits for every position, handed out `piece` rows at a time."""

    def __init__(self, seed: int = 0, piece: int = 5, vocab_size: int = VOCAB) -> None:
        self.name, self.vocab_size, self._seed, self._piece = f"#{seed}", vocab_size, seed, piece

    def row(self, ids: list[int]) -> np.ndarray:
        draw = np.random.default_rng([self._seed, *ids])
        return draw.normal(0, 2, self.vocab_size).astype(np.float32)

    def logits(self, window: Window) -> Iterator[np.ndarray]:
        ends = range(window.first + 1, len(window.ids))
        rows = np.array([self.row(window.ids[:end]) for end in ends])
        buffer = np.empty_like(rows[: self._piece])  # reused, as backends do
        for start in range(0, len(rows), self._piece):
            part = rows[start : start + self._piece]
            buffer[: len(part)] = part
            yield buffer[: len(part)]


WINDOWS = windows_of(IDS, 16, skip=3)


def test_nll_is_the_plain_computation():
    source, losses = Scripted(), []
    for window in WINDOWS:
        for at in range(window.first + 1, 16):
            losses.append(-log_softmax(source.row(window.ids[:at])[None])[0, window.ids[at]])
    got = perplexity(source, WINDOWS)
    assert got.num_tokens == len(losses) == 4 * 12
    assert got.nll.mean == pytest.approx(np.mean(losses), rel=1e-14)
    assert got.perplexity.mean == pytest.approx(np.exp(np.mean(losses)), rel=1e-14)


@pytest.mark.parametrize("piece", [1, 3, 100])
@pytest.mark.parametrize("block_rows", [1, 2, 1000])
def test_pieces_do_not_change_results(piece: int, block_rows: int, monkeypatch: pytest.MonkeyPatch):
    expected = divergence(Scripted(0), [Scripted(1), Scripted(2)], WINDOWS)
    monkeypatch.setattr(run_module, "block_rows", lambda vocab: block_rows)
    got = divergence(Scripted(0, piece), [Scripted(1, 4), Scripted(2, piece)], WINDOWS)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.token_kl, b.token_kl, rtol=1e-12)
        assert a.candidate.nll.mean == pytest.approx(b.candidate.nll.mean, rel=1e-14)
        assert a.agreement == b.agreement


def test_a_run_does_not_stray_from_itself():
    (got,) = divergence(Scripted(3, 2), [Scripted(3, 7)], WINDOWS)
    assert (got.kl.mean, got.kl_max, got.excess.mean) == (0.0, 0.0, 0.0)
    assert got.agreement.mean == 1.0
    assert got.candidate == got.reference


def test_progress_is_told_in_scored_tokens():
    seen: list[tuple[int, int]] = []
    perplexity(Scripted(piece=8), WINDOWS, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (48, 48)
    assert [done for done, _ in seen] == [8, 12, 20, 24, 32, 36, 44, 48]


def test_vocabularies_must_be_the_same():
    with pytest.raises(InvalidParameterError, match="share a tokenizer"):
        divergence(Scripted(0), [Scripted(1, vocab_size=51)], WINDOWS)


class _Broken(Scripted):
    def row(self, ids: list[int]) -> np.ndarray:
        return np.full(self.vocab_size, np.nan, np.float32)


def test_logits_that_are_not_finite_are_an_error():
    with pytest.raises(BackendError, match="not finite"):
        perplexity(_Broken(), WINDOWS)
    with pytest.raises(BackendError, match="not finite"):
        divergence(Scripted(0), [_Broken(1)], WINDOWS)


class _Short(Scripted):
    def logits(self, window: Window) -> Iterator[np.ndarray]:
        yield next(super().logits(window))


def test_a_source_that_ends_early_is_an_error():
    with pytest.raises(BackendError, match="fewer rows"):
        divergence(Scripted(0), [_Short(1)], WINDOWS)

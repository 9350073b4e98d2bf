"""Walks windows through sources of logits, all in step, and keeps a few numbers a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from octavo.backends.base import Floats
from octavo.errors import BackendError, InvalidParameterError
from octavo.eval.metrics import Doubles, block_rows, kl_divergence, log_softmax
from octavo.eval.results import Divergence, Perplexity
from octavo.eval.source import LogitsSource
from octavo.eval.windows import Window

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (scored tokens, all tokens to score) as an evaluation goes on."""


@dataclass
class _PerToken:
    """What is kept of a candidate, one number a scored token."""

    nll: list[Doubles] = field(default_factory=list)
    kl: list[Doubles] = field(default_factory=list)
    agrees: list[Doubles] = field(default_factory=list)


def perplexity(
    source: LogitsSource, windows: Sequence[Window], on_progress: Progress | None = None
) -> Perplexity:
    """How well a source predicts the windows' tokens.

    Raises BackendError if its logits are not finite.
    """
    parts = []
    for targets, (logits,) in _pieces([source], windows, on_progress):
        parts.append(-_of(log_softmax(logits), targets))
        _check_finite(source, parts[-1])
    return Perplexity.of(np.concatenate(parts))


def divergence(
    reference: LogitsSource,
    candidates: Sequence[LogitsSource],
    windows: Sequence[Window],
    on_progress: Progress | None = None,
) -> list[Divergence]:
    """How far each candidate strays from the reference on the windows, in one pass.

    Raises InvalidParameterError if vocabularies differ, BackendError if logits are not finite.
    """
    _check_vocabularies(reference, candidates)
    reference_nll: list[Doubles] = []
    kept = [_PerToken() for _ in candidates]
    for targets, (first, *others) in _pieces([reference, *candidates], windows, on_progress):
        expected, best = log_softmax(first), first.argmax(axis=-1)
        reference_nll.append(-_of(expected, targets))
        _check_finite(reference, reference_nll[-1])
        for candidate, logits, keep in zip(candidates, others, kept, strict=True):
            got = log_softmax(logits)
            keep.nll.append(-_of(got, targets))
            keep.kl.append(kl_divergence(expected, got))
            keep.agrees.append((logits.argmax(axis=-1) == best).astype(np.float64))
            _check_finite(candidate, keep.kl[-1])
    base = np.concatenate(reference_nll)
    return [
        Divergence.of(
            candidate.name,
            np.concatenate(keep.kl),
            np.concatenate(keep.agrees),
            np.concatenate(keep.nll),
            base,
        )
        for candidate, keep in zip(candidates, kept, strict=True)
    ]


def _pieces(
    sources: Sequence[LogitsSource], windows: Sequence[Window], on_progress: Progress | None
) -> Iterator[tuple[list[int], list[Floats]]]:
    """Target tokens and each source's logits for them, a few rows at a time."""
    total, done = sum(len(window.targets) for window in windows), 0
    rows = block_rows(sources[0].vocab_size)
    for window in windows:
        at = 0
        for pieces in _aligned([source.logits(window) for source in sources]):
            for start in range(0, len(pieces[0]), rows):
                blocks = [piece[start : start + rows] for piece in pieces]
                targets = window.targets[at : at + len(blocks[0])]
                at += len(targets)
                yield targets, blocks
            if on_progress:
                on_progress(done + at, total)
        done += at


def _aligned(streams: Sequence[Iterator[Floats]]) -> Iterator[list[Floats]]:
    """Streams of rows, cut at the same places. All must end together."""
    held = [next(stream, None) for stream in streams]
    while all(piece is not None for piece in held):
        pieces = [piece for piece in held if piece is not None]
        count = min(len(piece) for piece in pieces)
        yield [piece[:count] for piece in pieces]
        held = [
            piece[count:] if len(piece) > count else next(stream, None)
            for piece, stream in zip(pieces, streams, strict=True)
        ]
    if any(piece is not None for piece in held):
        raise BackendError("eval: one source gave fewer rows of logits than another")


def _of(logprobs: Doubles, targets: Sequence[int]) -> Doubles:
    picked: Doubles = logprobs[np.arange(len(targets)), targets]
    return picked


def _check_finite(source: LogitsSource, values: Doubles) -> None:
    if not np.isfinite(values).all():
        raise BackendError(f"eval: logits of {source.name} are not finite")


def _check_vocabularies(reference: LogitsSource, candidates: Sequence[LogitsSource]) -> None:
    for candidate in candidates:
        if candidate.vocab_size != reference.vocab_size:
            raise InvalidParameterError(
                "reference",
                f"has a vocabulary of {reference.vocab_size:,} tokens, but {candidate.name} has "
                f"{candidate.vocab_size:,}; compare models that share a tokenizer",
            )

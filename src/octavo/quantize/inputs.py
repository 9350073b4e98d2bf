"""What is learned from the inputs of a product, [tokens, columns]."""

from __future__ import annotations

import numpy as np

from octavo.backends.base import Floats

HELD_OUT = 4
"""Every fourth window is for judging."""


def tempered(x: Floats) -> Floats:
    """Inputs for statistics: a token of more than twice the median size counts as one of that.

    The first token of a text can be a thousand times as large as all others (Sun et al. 2024), and
    would be all that is seen; what matters of it is its relative error, as of any.
    """
    if not len(x):
        return x
    size = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
    most = 2 * np.median(size)
    if not (size > most).any():
        return x
    result: Floats = x * np.minimum(np.float32(1), most / np.maximum(size, np.float32(1e-30)))
    return result.astype(np.float32)


def mean_square(x: Floats) -> Floats:
    """Of each column, above 0."""
    result: Floats = np.einsum("tk,tk->k", x, x) / np.float32(len(x)) + np.float32(1e-12)
    return result


def fill_unseen(importance: Floats) -> None:
    """Of experts [E, K]: those that no token chose get the mean of the others."""
    unseen = ~importance.any(axis=1)
    seen = importance[~unseen]
    importance[unseen] = seen.mean(axis=0) if len(seen) else np.float32(1)


def apart(x: Floats, window: int) -> tuple[Floats, Floats]:
    """Inputs to learn from and inputs to judge by: every fourth window of so many tokens is for
    judging. Of fewer than four windows, all are for both."""
    judges = np.arange(len(x)) // window % HELD_OUT == HELD_OUT - 1
    return (x[~judges], x[judges]) if judges.any() else (x, x)

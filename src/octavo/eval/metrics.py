"""Distributions over the next token, compared in float64."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats

Doubles: TypeAlias = NDArray[np.float64]

BLOCK_ELEMENTS = 1 << 20
"""Logits looked at together: a few arrays of 8 MB in float64, whatever the vocabulary."""


def log_softmax(logits: Floats) -> Doubles:
    """Log-probabilities [n, vocab] of float32 logits [n, vocab]; sums in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def kl_divergence(reference: Doubles, candidate: Doubles) -> Doubles:
    """KL(reference || candidate) in nats, [n], of log-probabilities [n, vocab].

    sum over v of p(v) * (log p(v) - log q(v)): exactly 0 for equal distributions.
    """
    divergence: Doubles = np.einsum("nv,nv->n", np.exp(reference), reference - candidate)
    return divergence


def block_rows(vocab_size: int) -> int:
    """Rows of logits to look at together."""
    return max(1, BLOCK_ELEMENTS // vocab_size)

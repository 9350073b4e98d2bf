"""The sampler's plain twin: float64 NumPy, full sorts, no shortcuts. It defines the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.decoding import SamplingRow

Array = Any


def philox(seed: int, counter: int) -> float:
    """Philox4x32-10 by the paper, then the 53 upper bits of its first 64 as a fraction."""
    c, k = [counter & 0xFFFFFFFF, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return (((c[1] << 32) | c[0]) >> 11) * 2.0**-53


def adjusted(logits: Array, row: SamplingRow, allowed: Array | None = None) -> Array:
    """Logits in float64 after bias, mask, bans and penalties."""
    p, x = row.params, logits.astype(np.float64)
    for token, bias in p.logit_bias.items():
        x[token] += bias
    if allowed is not None:
        x[~allowed] = -np.inf
    x[list(row.banned_ids)] = -np.inf
    for token in set(row.prompt_ids) | set(row.output_ids):
        factor = p.repetition_penalty
        x[token] = x[token] / factor if x[token] > 0 else x[token] * factor
    for token in set(row.output_ids):
        times = list(row.output_ids).count(token)
        x[token] -= p.frequency_penalty * times + p.presence_penalty
    return x


def weights(x: Array, row: SamplingRow) -> Array:
    """Unnormalised probabilities after temperature, min_p, top_k and top_p."""
    p = row.params
    with np.errstate(under="ignore"):
        w = np.exp((x - x.max()) / p.temperature)
    w[w < p.min_p] = 0
    order = np.lexsort((np.arange(len(w)), -w))
    if p.top_k > 0:
        w[order[p.top_k :]] = 0
    if p.top_p < 1:
        sums = np.cumsum(w[order])
        reached = int(np.searchsorted(sums, float(np.float32(p.top_p)) * sums[-1]))
        w[order[reached + 1 :]] = 0
    return w


def draw(x: Array, row: SamplingRow) -> int:
    """The token: greedy, or the first whose running sum in id order exceeds the uniform number."""
    if row.params.temperature == 0:
        return int(np.argmax(x))
    w = weights(x, row)
    u = philox(row.seed & (2**64 - 1), len(row.output_ids))
    return int(np.flatnonzero(np.cumsum(w) > u * w.sum())[0])


def log_softmax(logits: Array) -> Array:
    """Of the raw logits, in float64."""
    x = logits.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())

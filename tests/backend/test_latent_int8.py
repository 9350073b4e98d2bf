"""Latents in int8: the same bits in any chunks, half the memory, and what a block held before does
not show."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.backends import get_backend
from octavo.backends.testing import Layout, run_op
from octavo.graph import LatentAttentionAttrs, Op

ATTRS = LatentAttentionAttrs(0, 16, 512, 64, 0.05)


def operands(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [rng.normal(size=(rows, n)).astype(np.float32) for n in (16 * 512, 16 * 64, 512, 64)]


def attend(inputs: list[np.ndarray], layout: Layout) -> np.ndarray:
    cpu = get_backend("cpu")
    return run_op(cpu, Op.LATENT_ATTENTION, inputs, ATTRS, layout, kv_dtype="int8")


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_chunks_change_no_bit(chunk: int) -> None:
    inputs = operands(70)
    whole = attend(inputs, Layout((70,)))
    assert np.array_equal(attend(inputs, Layout((70,), chunk=chunk)), whole)


def test_huge_and_tiny_rows_keep_to_themselves() -> None:
    """A scale for each token's latent and key: neighbours of other sizes do not matter."""
    inputs = operands(40)
    other = [x.copy() for x in inputs]
    other[2][-1], other[3][-1] = 1e6, 1e-6
    before, after = (attend(x, Layout((40,))) for x in (inputs, other))
    assert np.array_equal(before[:-1], after[:-1])
    assert np.isfinite(after).all()

"""What the CPU backend refuses of latent attention, by name."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.backends import get_backend
from octavo.backends.testing import Layout, random_tensor, run_op
from octavo.errors import BackendError
from octavo.graph import HeadLinearAttrs, LatentAttentionAttrs, Op


def rows(width: int) -> np.ndarray:
    return np.zeros((1, width), np.float32)


@pytest.mark.parametrize(("n", "k"), [(8193, 8), (8, 8193)])
def test_heads_that_a_tile_has_no_room_for(n: int, k: int) -> None:
    weight = random_tensor("weight", "F32", (n, k), 1)
    with pytest.raises(BackendError, match=rf"'weight' has heads of {n} x {k}, expected at most"):
        run_op(
            get_backend("cpu"),
            Op.HEAD_LINEAR,
            [rows(k), weight],
            HeadLinearAttrs(1),
            Layout((1,)),
        )


@pytest.mark.parametrize(
    ("latent", "kv_dtype", "message"),
    [
        (600, "f32", "a latent and its key must be one head of at most 640"),
        (48, "int8", "latents in int8, at most 512, and their keys must be multiples of 32"),
        (544, "int8", "latents in int8, at most 512, and their keys must be multiples of 32"),
        (32, "int4", "latents cannot be kept in int4"),
    ],
)
def test_caches_of_latents(latent: int, kv_dtype: str, message: str) -> None:
    inputs = [rows(latent), rows(64), rows(latent), rows(64)]
    attrs = LatentAttentionAttrs(0, 1, latent, 64, 0.1)
    with pytest.raises(BackendError, match=message):
        run_op(
            get_backend("cpu"), Op.LATENT_ATTENTION, inputs, attrs, Layout((1,)), kv_dtype=kv_dtype
        )

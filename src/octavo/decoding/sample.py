"""The Python door to the native sampler, for backends that hold logits as NumPy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.decoding.batch import SampleResult, SamplingBatch


def sample_batch(
    logits: NDArray[np.float32], batch: SamplingBatch, num_threads: int = 1
) -> SampleResult:
    """Draw one token from each row of logits [R, V]; they are only read.

    A row that cannot be sampled gets a negative id (`SampleResult.error` says why) and hurts no
    other row. Raises ValueError if shapes or parameters are wrong.
    """
    from octavo import _native

    rows = np.ascontiguousarray(logits, dtype=np.float32)
    return SampleResult(*_native.sample(rows, _native.SamplingBatch(batch), num_threads))

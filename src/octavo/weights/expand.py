"""Expanding a tensor to float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.weights.tensor import Tensor


def dequantize(tensor: Tensor) -> NDArray[np.float32]:
    """The tensor's numbers as a new float32 array of its shape, exactly as its format defines them.

    Raises UnsupportedError naming tensor and type for a scheme that is known by name only.
    """
    from octavo import _native
    from octavo.weights.tensor import DerivedTensor

    if isinstance(tensor, DerivedTensor):
        return tensor.origin.values()
    tensor.require_native()
    scheme = tensor.scheme
    data = np.ascontiguousarray(tensor.data)
    flat = _native.dequantize(data, scheme.ggml_type, scheme.block_elems, scheme.block_bytes)
    return flat.reshape(tensor.shape)

"""4-bit floats in compressed-tensors: mxfp4 and nvfp4.

weight_packed uint8 [N, K/2], the first of two numbers in the low bits. mxfp4: weight_scale uint8
[N, K/32], exponents with a bias of 127. nvfp4: weight_scale e4m3 [N, K/16], and one
weight_global_scale by which all are divided.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.choose import HALF
from octavo.weights.quantized.mxfp4 import BLOCKS, E2m1Origin, E2m1Tensor, e2m1
from octavo.weights.quantized.origins import GROUP, FloatOrigin, Floats
from octavo.weights.quantized.parts import Module
from octavo.weights.scheme import MADE_SCHEMES, Scheme
from octavo.weights.tensor import DerivedTensor

_NVFP4 = MADE_SCHEMES["NVFP4_D"]


def packed_floats(module: Module, group: int) -> DerivedTensor:
    """mxfp4 has groups of 32, nvfp4 of 16."""
    packed = module.part(".weight_packed").check(("U8",), None, None)
    n, k = packed.shape[0], packed.shape[1] * 2
    if group not in (16, 32) or k % group:
        raise FormatError(
            f"{packed.where}: {k} columns in groups of {group}; expected groups of 16 or 32"
        )
    name, scale = f"{module.name}.weight", module.part(".weight_scale")
    if group == 32:
        scale.check(("U8", "F8_E8M0"), n, k // 32)
        origin = E2m1Origin(module, ".weight_packed", ".weight_scale", (n, k))
        return E2m1Tensor(name, (n, k), BLOCKS, origin)
    scale.check(("F8_E4M3",), n, k // 16)
    module.part(".weight_global_scale").check(("F32",), 1)
    scheme = HALF if k % GROUP else _NVFP4
    return DerivedTensor(name, (n, k), scheme, _Nvfp4Origin(module))


class _Nvfp4Origin(FloatOrigin):
    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if scheme is not _NVFP4:
            return super().blocks(scheme)
        scales = self.module.part(".weight_scale").array().astype(np.uint8, copy=False)
        inverse = self.module.part(".weight_global_scale").floats()
        with np.errstate(divide="ignore"):
            outer = np.float32(1) / inverse
        if not np.isfinite(outer).all() or (scales >= 0x7F).any():
            where = self.module.part(".weight_scale").where
            raise FormatError(f"{where}: scales below 0 or not finite, or a global scale of 0")
        pairs = self.module.part(".weight_packed").array().astype(np.uint8, copy=False)
        blocks = np.empty((len(scales), scales.shape[1] // 2, scheme.block_bytes), np.uint8)
        blocks[:, :, :4] = outer.view(np.uint8)
        blocks[:, :, 4:6] = scales.reshape(len(scales), -1, 2)
        blocks[:, :, 6:] = pairs.reshape(len(scales), -1, 16)
        return blocks.reshape(-1)

    def values(self) -> Floats:
        scale = self.module.part(".weight_scale").floats()
        q = e2m1(self.module.part(".weight_packed"), len(scale), scale.shape[1] * 16)
        twice = np.float32(2) * self.module.part(".weight_global_scale").floats()
        scale = scale / twice  # q is twice the number
        return (q.reshape(*scale.shape, 16) * scale[:, :, None]).reshape(q.shape)

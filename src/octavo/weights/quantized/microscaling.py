"""4-bit floats in compressed-tensors: mxfp4 and nvfp4.

weight_packed uint8 [N, K/2], the first of two numbers in the low bits. mxfp4: weight_scale uint8
[N, K/32], exponents with a bias of 127. nvfp4: weight_scale e4m3 [N, K/16], and one
weight_global_scale by which all are divided.
"""

from __future__ import annotations

import numpy as np

from octavo.errors import FormatError
from octavo.weights.quantized.choose import HALF
from octavo.weights.quantized.mxfp4 import BLOCKS, E2m1Origin, E2m1Tensor, e2m1
from octavo.weights.quantized.origins import FloatOrigin, Floats
from octavo.weights.quantized.parts import Module
from octavo.weights.tensor import DerivedTensor


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
    return DerivedTensor(name, (n, k), HALF, _Nvfp4Origin(module))


class _Nvfp4Origin(FloatOrigin):
    def values(self) -> Floats:
        scale = self.module.part(".weight_scale").floats()
        q = e2m1(self.module.part(".weight_packed"), len(scale), scale.shape[1] * 16)
        twice = np.float32(2) * self.module.part(".weight_global_scale").floats()
        scale = scale / twice  # q is twice the number
        return (q.reshape(*scale.shape, 16) * scale[:, :, None]).reshape(q.shape)

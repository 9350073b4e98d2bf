"""MXFP4 (OCP Microscaling Formats 1.0): 4-bit floats e2m1, one power of two for 32 of them.

gpt-oss stores experts as X_blocks uint8 [E, N, K/32, 16], the first of two numbers in the low bits,
and X_scales uint8 [E, N, K/32], exponents with a bias of 127.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.bits import E2M1, nibbles
from octavo.weights.quantized.choose import scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import IntegerOrigin, Integers
from octavo.weights.quantized.parts import Module, Part
from octavo.weights.tensor import DerivedTensor

E2M1_RANGE = (-12, 12)
"""Of twice a number."""


@dataclass(frozen=True)
class Mxfp4:
    """The weight's name is that of its parts without their ending."""

    endings = ("_blocks", "_scales")
    marks = ("_blocks",)
    result = ""

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        blocks = module.part("_blocks")
        if blocks.dtype != "U8" or len(blocks.shape) < 3 or blocks.shape[-1] != 16:
            got = f"{blocks.dtype} {list(blocks.shape)}"
            raise FormatError(f"{blocks.where}: got {got}, expected U8 [..., N, K/32, 16]")
        module.part("_scales").check(("U8",), *blocks.shape[:-1])
        shape = (*blocks.shape[:-2], blocks.shape[-2] * 32)
        origin = E2m1Origin(module, "_blocks", "_scales", shape)
        return DerivedTensor(module.name, shape, scheme_for(*E2M1_RANGE, 32, shape[-1]), origin)


class E2m1Origin(IntegerOrigin):
    """Integers are twice the numbers, so scales are half the stored powers."""

    def __init__(self, module: Module, data: str, scales: str, shape: tuple[int, ...]) -> None:
        super().__init__(module)
        self._data, self._scales = data, scales
        self._shape = shape

    def integers(self) -> Integers:
        rows, k = int(np.prod(self._shape[:-1])), self._shape[-1]
        q = e2m1(self.module.part(self._data), rows, k)
        codes = self.module.part(self._scales).array().astype(np.int32).reshape(rows, -1)
        return Integers(q, np.ldexp(np.float32(1), codes - 128))

    def values(self) -> NDArray[np.float32]:
        return super().values().reshape(self._shape)


def e2m1(part: Part, rows: int, k: int) -> NDArray[np.int16]:
    """Twice the numbers of packed 4-bit floats, [rows, k]."""
    return E2M1[nibbles(part.data).reshape(rows, k)].astype(np.int16)


def read(fields: Fields) -> Mxfp4:
    """gpt-oss's."""
    fields.only(("quant_method", "modules_to_not_convert"))
    return Mxfp4()

"""MXFP4 (OCP Microscaling Formats 1.0): 4-bit floats e2m1, one power of two for 32 of them.

gpt-oss stores experts as X_blocks uint8 [E, N, K/32, 16], the first of two numbers in the low bits,
and X_scales uint8 [E, N, K/32], exponents with a bias of 127.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.bits import E2M1, nibbles
from octavo.weights.quantized.choose import scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import IntegerOrigin, Integers
from octavo.weights.quantized.parts import Module, Part
from octavo.weights.tensor import DerivedTensor, Tensor

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
        return E2m1Tensor(module.name, shape, scheme_for(*E2M1_RANGE, 32, shape[-1]), origin)


class E2m1Origin(IntegerOrigin):
    """Integers are twice the numbers, so scales are half the stored powers.

    rows: which of the stored rows, those of all experts counted through; None: all.
    """

    def __init__(
        self,
        module: Module,
        data: str,
        scales: str,
        shape: tuple[int, ...],
        rows: range | None = None,
    ) -> None:
        super().__init__(module)
        self._data, self._scales = data, scales
        self._shape = shape
        self._rows = range(math.prod(shape[:-1])) if rows is None else rows

    def of(self, rows: range, shape: tuple[int, ...]) -> E2m1Origin:
        """Some of its rows, counted from its own first."""
        return E2m1Origin(self.module, self._data, self._scales, shape, self._rows[_slice(rows)])

    def integers(self) -> Integers:
        codes = self._some(self._scales, self._shape[-1] // 32).astype(np.int32)
        packed = self._some(self._data, self._shape[-1] // 2)
        return Integers(
            E2M1[nibbles(packed)].astype(np.int16), np.ldexp(np.float32(1), codes - 128)
        )

    def values(self) -> NDArray[np.float32]:
        return super().values().reshape(self._shape)

    def _some(self, ending: str, width: int) -> NDArray[np.uint8]:
        """The wanted rows of a part, [rows, width]; a view."""
        return self.module.part(ending).data.reshape(-1, width)[_slice(self._rows)]


def _slice(rows: range) -> slice:
    return slice(rows.start, rows.stop, rows.step)


class E2m1Tensor(DerivedTensor):
    """Experts and rows are made on their own."""

    origin: E2m1Origin

    def named(self, name: str) -> E2m1Tensor:
        """The same under another name."""
        return E2m1Tensor(name, self.shape, self.scheme, self.origin)

    def rows(self, name: str, start: int, stop: int, step: int = 1) -> Tensor:
        """Rows of a matrix, or whole matrices."""
        each = math.prod(self.shape[1:-1])
        shape = (len(range(start, stop, step)), *self.shape[1:])
        assert each == 1 or step == 1
        rows = range(start * each, stop * each, step)
        return E2m1Tensor(name, shape, self.scheme, self.origin.of(rows, shape))

    def slices(self) -> list[Tensor]:
        """The matrices of the experts."""
        n, shape = self.shape[1], self.shape[1:]
        return [
            E2m1Tensor(
                f"{self.name}[{e}]",
                shape,
                self.scheme,
                self.origin.of(range(e * n, (e + 1) * n), shape),
            )
            for e in range(self.shape[0])
        ]


def e2m1(part: Part, rows: int, k: int) -> NDArray[np.int16]:
    """Twice the numbers of packed 4-bit floats, [rows, k]."""
    return E2M1[nibbles(part.data).reshape(rows, k)].astype(np.int16)


def read(fields: Fields) -> Mxfp4:
    """gpt-oss's."""
    fields.only(("quant_method", "modules_to_not_convert"))
    return Mxfp4()

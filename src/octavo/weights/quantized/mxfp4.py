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
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import GROUP, QuantizedOrigin
from octavo.weights.quantized.parts import Module, Part
from octavo.weights.scheme import SCHEMES, Scheme
from octavo.weights.tensor import DerivedTensor, Tensor

BLOCKS = SCHEMES["MXFP4"]
"""GGUF's blocks of it: the exponent, then the codes of columns i and i + 16 in byte i."""


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
        return E2m1Tensor(module.name, shape, BLOCKS, origin)


class E2m1Origin(QuantizedOrigin):
    """Codes and exponents as they are, in GGUF's order.

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

    def values(self) -> NDArray[np.float32]:
        exponents = self._some(self._scales, self._shape[-1] // GROUP).astype(np.int32)
        twice = E2M1[self._codes()].astype(np.float32)
        groups = twice.reshape(*exponents.shape, GROUP)
        return np.ldexp(groups, exponents[:, :, None] - 128).reshape(self._shape)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        assert scheme is BLOCKS
        exponents = self._some(self._scales, self._shape[-1] // GROUP).reshape(-1, 1)
        codes = self._codes().reshape(-1, GROUP)
        pairs = codes[:, :16] | codes[:, 16:] << np.uint8(4)
        return np.concatenate([exponents, pairs], axis=1).reshape(-1)

    def _codes(self) -> NDArray[np.uint8]:
        return nibbles(self._some(self._data, self._shape[-1] // 2))

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
        return E2m1Tensor(name, self.shape, self.scheme, self.origin).found_at(self.home)

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

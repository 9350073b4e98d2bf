"""BitNet's packed weights: -1, 0 and 1 in two bits, four rows in a byte, one scale a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.quantized.choose import scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import IntegerOrigin, Integers
from octavo.weights.quantized.parts import FLOATS, Module
from octavo.weights.scheme import SCHEMES, Scheme
from octavo.weights.tensor import DerivedTensor

TERNARY = SCHEMES["TQ2_0"]
_ROWS = 4
_KNOWN = ("quant_method", "linear_class", "quantization_mode", "modules_to_not_convert")


@dataclass(frozen=True)
class BitNet:
    """See table.Method. divides: a weight is its number divided by the scale, as the first files
    have it ("bitlinear"); else times the scale ("autobitlinear")."""

    divides: bool
    endings = (".weight", ".weight_scale")
    marks = (".weight_scale",)
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        packed, k = module.part(".weight").check(("U8",), None, None).shape
        scale = module.part(".weight_scale")
        if scale.shape not in ((), (1,)) or scale.dtype not in FLOATS:
            got = f"{scale.dtype} {list(scale.shape)}"
            raise FormatError(f"{scale.where}: got {got}, expected one number")
        exact = k % TERNARY.block_elems == 0
        scheme = TERNARY if exact else scheme_for(-1, 1, k, k)
        origin = _Origin(module, self.divides)
        return DerivedTensor(f"{module.name}.weight", (_ROWS * packed, k), scheme, origin)


class _Origin(IntegerOrigin):
    def __init__(self, module: Module, divides: bool) -> None:
        super().__init__(module)
        self._divides = divides

    def integers(self) -> Integers:
        """Rows r, N/4 + r, N/2 + r and 3N/4 + r are the bits of packed row r, the lowest first."""
        weight = self.module.part(".weight")
        packed = weight.array().astype(np.uint8, copy=False)
        codes = np.concatenate([(packed >> np.uint8(2 * i)) & np.uint8(3) for i in range(_ROWS)])
        if codes.max(initial=0) > 2:
            raise FormatError(f"{weight.where}: holds 3, expected 0, 1 and 2 (-1, 0 and 1)")
        scales = np.full((len(codes), 1), self._scale(), np.float32)
        return Integers(codes.astype(np.int8) - np.int8(1), scales)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if scheme is not TERNARY:
            return super().blocks(scheme)
        found = self.integers()
        return ternary_blocks(found.q, self._half_scales(found.scales[:1])[0, 0])

    def _scale(self) -> np.float32:
        part = self.module.part(".weight_scale")
        value = np.float32(part.floats().reshape(-1)[0])
        if not np.isfinite(value) or value == 0:
            raise FormatError(f"{part.where}: got {value}, expected a scale other than 0")
        return np.float32(1) / value if self._divides else value


def ternary_blocks(q: NDArray[np.int8], scale: np.float16) -> NDArray[np.uint8]:
    """q [N, K] of -1, 0 and 1 as TQ2_0, flat: of each 128 numbers the m-th byte has the m-th, the
    (m + 32)-th and so on; the scale behind 256."""
    codes = (q + np.int8(1)).astype(np.uint8).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    bytes_ = np.bitwise_or.reduce(codes << shifts, axis=2).reshape(-1, 64)
    d = np.full((len(bytes_), 1), scale, np.float16).view(np.uint8)
    return np.concatenate([bytes_, d], axis=1).reshape(-1)


def read(fields: Fields) -> BitNet:
    """The settings of an already quantized model."""
    fields.only(_KNOWN)
    kind = fields.choice("linear_class", ("bitlinear", "autobitlinear"), "bitlinear")
    mode = fields.choice("quantization_mode", ("offline", "online"), "offline")
    if mode == "online":
        raise UnsupportedError(
            f"{fields.where}: 'quantization_mode': got 'online' (weights are still to be rounded),"
            " expected 'offline'; load the packed model"
        )
    return BitNet(kind == "bitlinear")

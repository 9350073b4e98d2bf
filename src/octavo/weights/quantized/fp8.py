"""8-bit floats (e4m3, or e5m2) with scales: of the whole, of each row, or of blocks, such as
DeepSeek's of 128 x 128.

weight F8_E4M3 or F8_E5M2 [N, K]; weight_scale_inv [N/128, K/128] in blocks, or weight_scale of one
number or of [N] or [N, 1]; in spite of its name the first is multiplied too. input_scale is for
other kernels: activations are quantized here by groups of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.choose import float8_scheme
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import GROUP, Codes, FloatOrigin, Floats
from octavo.weights.quantized.parts import FLOAT8, FLOATS, Module, Part
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import DerivedTensor

SCALES = (*FLOATS, "F8_E8M0")
_KNOWN = (
    *("quant_method", "fmt", "activation_scheme", "weight_block_size", "scale_fmt"),
    *("modules_to_not_convert", "ignored_layers", "activation_scale_ub"),
)


@dataclass(frozen=True)
class Fp8:
    """block: rows and columns that share a scale; None: scales of rows or of the whole."""

    block: tuple[int, int] | None
    endings = (
        *(".weight", ".weight_scale_inv", ".weight_scale", ".input_scale", ".activation_scale"),
        ".input_scale_ub",
    )
    marks = (".weight_scale_inv", ".weight_scale")
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        weight = module.part(".weight").check(tuple(FLOAT8), None, None)
        n, k = weight.shape
        ending = ".weight_scale_inv" if module.has(".weight_scale_inv") else ".weight_scale"
        scale = module.part(ending)
        if self.block is not None:
            scale.check(SCALES, -(-n // self.block[0]), -(-k // self.block[1]))
        else:
            check_scale(scale, n)
        scheme = float8_scheme(weight.dtype, k, self.block)
        origin = Float8Origin(module, scale, self.block)
        return DerivedTensor(f"{module.name}.weight", (n, k), scheme, origin)


def check_scale(part: Part, rows: int) -> None:
    """Raise FormatError unless it is one number, or one a row."""
    shapes: list[tuple[int, ...]] = [(), (1,), (1, 1), (rows,), (rows, 1)]
    if part.dtype not in SCALES or part.shape not in shapes:
        got = f"{part.dtype} {list(part.shape)}"
        raise FormatError(f"{part.where}: got {got}, expected floats, one or one a row of {rows}")


class Float8Origin(FloatOrigin):
    """scale: as Fp8 and compressed-tensors have it; block as in Fp8."""

    def __init__(self, module: Module, scale: Part, block: tuple[int, int] | None) -> None:
        super().__init__(module)
        self._scale = scale
        self._block = block

    def codes(self) -> Codes:
        weight = self.module.part(".weight")
        n, k = weight.shape
        scale, table = self._scale.floats(), FLOAT8[weight.dtype]
        if self._block is not None:
            return Codes(weight.data, table, (n, k), scale, self._block)
        scale = scale.reshape(-1, 1)
        return Codes(weight.data, table, (n, k), scale, (1 if len(scale) > 1 else n, k))

    def values(self) -> Floats:
        weight = self.module.part(".weight").floats()
        return weight * self._scales(1)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if scheme.block_elems != GROUP:
            return super().blocks(scheme)
        codes = self.module.part(".weight").array().astype(np.uint8, copy=False)
        n, k = codes.shape
        scales = self._scales(GROUP)
        self._check_finite(codes, scales)
        out = np.empty((n, k // GROUP, scheme.block_bytes), np.uint8)
        out[:, :, :4].view(np.float32)[:, :, 0] = scales
        out[:, :, 4:] = codes.reshape(n, -1, GROUP)
        return out.reshape(-1)

    def _scales(self, run: int) -> Floats:
        """Of each row and run of so many columns, or what broadcasts to that."""
        scale = self._scale.floats()
        if self._block is None:
            return scale.reshape(-1, 1)
        n, k = self.module.part(".weight").shape
        by_row = np.repeat(scale, self._block[0], axis=0)[:n]
        return by_row[:, np.arange(0, k, run) // self._block[1]]

    def _check_finite(self, codes: NDArray[np.uint8], scales: Floats) -> None:
        if not np.isfinite(scales).all():
            raise FormatError(f"{self._scale.where}: scales that are not finite numbers")
        weight = self.module.part(".weight")
        bad = ~np.isfinite(FLOAT8[weight.dtype])
        if any(bad[row].any() for row in codes):
            which = ", ".join(f"{code:#04x}" for code in np.flatnonzero(bad))
            raise FormatError(f"{weight.where}: weights that are not finite numbers ({which})")


def read(fields: Fields) -> Fp8:
    """DeepSeek's, Qwen's and vLLM's own kind."""
    fields.only(_KNOWN)
    fields.choice("fmt", ("e4m3", "e5m2"), "e4m3")
    fields.choice("activation_scheme", ("dynamic", "static"), "dynamic")
    return Fp8(block_of(fields, "weight_block_size"))


def read_fbgemm(fields: Fields) -> Fp8:
    """Meta's: a scale for each row."""
    fields.only(_KNOWN)
    return Fp8(None)


def block_of(fields: Fields, key: str) -> tuple[int, int] | None:
    """Two sizes above 0, or None."""
    value = fields.values.get(key)
    if value is None:
        return None
    sizes = value if isinstance(value, list) else []
    whole = all(isinstance(s, int) and not isinstance(s, bool) and 0 < s < 1 << 24 for s in sizes)
    if len(sizes) != 2 or not whole:
        raise fields.error(key, "two sizes above 0")
    return sizes[0], sizes[1]

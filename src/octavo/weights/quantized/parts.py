"""The stored tensors that together are one quantized weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.bits import E4M3, E5M2, bfloat16
from octavo.weights.safetensors import Entry, SafetensorsFile

_NUMPY = {
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "F8_E5M2": np.uint8,
    "F8_E8M0": np.uint8,
}
FLOATS = ("F32", "F16", "BF16")
FLOAT8 = {"F8_E4M3": E4M3, "F8_E5M2": E5M2}
"""The values of 8-bit floats."""


@dataclass(frozen=True)
class Part:
    """One stored tensor. Reading is of its own bytes; nothing is kept."""

    file: SafetensorsFile
    entry: Entry

    @property
    def where(self) -> str:
        """File and tensor, for errors."""
        return f"{self.file.path}: tensor '{self.entry.name}'"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def dtype(self) -> str:
        return self.entry.dtype

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes as they lie in the file; a view."""
        return self.file.map.array()[self.entry.begin : self.entry.end]

    def check(self, dtypes: tuple[str, ...], *shape: int | None) -> Part:
        """Itself. Raises FormatError unless the dtype is one of these and the shape fits; None
        stands for any size above 0."""
        if self.dtype not in dtypes:
            raise FormatError(
                f"{self.where}: got dtype {self.dtype}, expected {' or '.join(dtypes)}"
            )
        fits = len(shape) == len(self.shape) and all(
            got > 0 and want in (None, got) for got, want in zip(self.shape, shape, strict=True)
        )
        if not fits:
            wanted = ["?" if size is None else size for size in shape]
            raise FormatError(f"{self.where}: got shape {list(self.shape)}, expected {wanted}")
        return self

    def array(self) -> NDArray[np.generic]:
        """The numbers in their own dtype (bfloat16 and 8-bit floats as bits); a view."""
        return self.data.view(_NUMPY[self.dtype]).reshape(self.shape)

    def integers(self) -> NDArray[np.int64]:
        """The numbers of an integer tensor as int64."""
        return self.array().astype(np.int64)

    def floats(self) -> NDArray[np.float32]:
        """The numbers of a float tensor (or of e4m3, e5m2, e8m0) as float32."""
        raw = self.array()
        if self.dtype == "BF16":
            return bfloat16(raw.astype(np.uint16))
        if self.dtype in FLOAT8:
            return FLOAT8[self.dtype][raw.astype(np.uint8)]
        if self.dtype == "F8_E8M0":
            return np.ldexp(np.float32(1), raw.astype(np.int32) - 127)
        return raw.astype(np.float32)


@dataclass(frozen=True)
class Module:
    """The parts of one module's weight, by the ending of their names."""

    name: str
    parts: Mapping[str, Part]

    def has(self, ending: str) -> bool:
        """Whether the part is there."""
        return ending in self.parts

    def part(self, ending: str) -> Part:
        """A part that must be there. Raises FormatError naming file, module and part."""
        found = self.parts.get(ending)
        if found is None:
            some = next(iter(self.parts.values()))
            there = ", ".join(sorted(self.parts))
            raise FormatError(
                f"{some.file.path}: module '{self.name}' lacks '{ending}'; it has {there}"
            )
        return found

"""What quantized weights are made from, and how they become blocks that kernels read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.parts import Module
from octavo.weights.scheme import Scheme

GROUP = 32
"""Elements of a native block."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Integers:
    """w[n, k] = q[n, k] * scale[n, group of k]. q: int16 or int8 [N, K], less its zero point.
    scales: [N, G]. group_of: the group of each column, [K]; None: G equal runs of columns."""

    q: NDArray[np.signedinteger[Any]]
    scales: Floats
    group_of: NDArray[np.int64] | None = None

    def values(self) -> Floats:
        """In float32."""
        n, groups = self.scales.shape
        if self.group_of is not None:
            return self.q * self.scales[:, self.group_of]
        runs = self.q.reshape(n, groups, -1) * self.scales[:, :, None]
        return runs.reshape(self.q.shape)


@dataclass(frozen=True)
class Words:
    """Integers as they are packed, for native code to unpack: codes of `bits` in words, and how
    far apart two rows, two blocks of 32 columns and two words of a block are. interleaved: as
    AWQ has it. zeros, scales: [N, G], G equal runs of columns. order: column i of the blocks is
    column order[i] of the codes."""

    words: NDArray[np.int32]
    bits: int
    columns: int
    strides: tuple[int, int, int]
    zeros: NDArray[np.int16]
    scales: Floats
    interleaved: bool = False
    order: NDArray[np.int32] | None = None

    def blocks(self, scheme: Scheme, scales: NDArray[np.float16]) -> NDArray[np.uint8] | None:
        """As blocks of `scheme`; None if a number does not fit them."""
        from octavo._native import repack_integers

        return repack_integers(
            self.words.reshape(-1).view(np.uint32),
            self.bits,
            (len(scales), self.columns),
            self.strides,
            self.interleaved,
            np.ascontiguousarray(self.zeros),
            np.ascontiguousarray(scales).view(np.uint16),
            scheme.ggml_type,
            np.empty(0, np.int32) if self.order is None else self.order,
        )


@dataclass(frozen=True)
class Codes:
    """w[n, k] = table[code] * scale. codes: bytes, or two in a byte, the high bits first. scales:
    one for each block of rows and columns."""

    codes: NDArray[np.uint8]
    table: Floats
    shape: tuple[int, int]
    scales: Floats
    block: tuple[int, int]

    def halves(self) -> NDArray[np.uint8] | None:
        """In half precision; None if a number is beyond its range."""
        from octavo._native import scaled_halves

        nibbles, scales = len(self.table) == 16, np.ascontiguousarray(self.scales)
        return scaled_halves(self.codes, nibbles, self.table, self.shape, scales, *self.block)


class QuantizedOrigin(ABC):
    """Parts of a module read as the weight's numbers. See weights.tensor.Origin."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        """The bytes of all parts."""
        return tuple(part.data for part in self.module.parts.values())

    @abstractmethod
    def values(self) -> Floats:
        """The numbers in float32, by the format's definition."""

    @abstractmethod
    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        """The numbers as `scheme`."""

    def _halves(self) -> NDArray[np.uint8]:
        with np.errstate(over="ignore"):
            halves = self.values().astype(np.float16)
        if np.isinf(halves).any():
            raise self._too_large()
        return halves.reshape(-1).view(np.uint8)

    def _too_large(self) -> FormatError:
        return FormatError(f"{self._where()}: weights beyond the range of half precision")

    def _where(self) -> str:
        path = next(iter(self.module.parts.values())).file.path
        return f"{path}: module '{self.module.name}'"


class IntegerOrigin(QuantizedOrigin):
    """Integers with scales: blocks of a scheme that holds them, or half precision."""

    @abstractmethod
    def integers(self) -> Integers:
        """Read the parts."""

    def words(self) -> Words | None:
        """The parts as native code unpacks them; None where they are packed in another way."""
        return None

    def values(self) -> Floats:
        return self.integers().values()

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if scheme.block_elems == 1:
            return self._halves()
        words = self.words()
        if words is not None:
            blocks = words.blocks(scheme, self._half_scales(words.scales))
            if blocks is not None:
                return blocks
        found = self.integers()
        low, high = RANGES[scheme.name]
        if found.q.min() < low or found.q.max() > high:
            got = f"{found.q.min()} to {found.q.max()}"
            raise FormatError(
                f"{self._where()}: integers less their zero points: got {got}, expected"
                f" {low} to {high} by the quantization config"
            )
        return integer_blocks(scheme.name, found.q, self._half_scales(found.scales))

    def _half_scales(self, scales: Floats) -> NDArray[np.float16]:
        with np.errstate(over="ignore"):
            halves = scales.astype(np.float16)
        if not np.isfinite(halves).all():
            got = f"{scales.min():g} to {scales.max():g}"
            raise FormatError(f"{self._where()}: scales: got {got}, expected finite, below 65504")
        return halves


class FloatOrigin(QuantizedOrigin):
    """Numbers that only half precision comes near to."""

    def codes(self) -> Codes | None:
        """The parts as native code reads them; None where they lie in another way."""
        return None

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        codes = self.codes()
        if codes is None:
            return self._halves()
        halves = codes.halves()
        if halves is None:
            raise self._too_large()
        return halves


_NF4_LOW = (-1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105, 0)
_NF4_HIGH = (0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.562617, 0.7229568, 1)
_FP4 = (0, 0.0052083, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25)
CODE_TABLES: dict[str, Floats] = {
    "NF4": np.array((*_NF4_LOW, *_NF4_HIGH), np.float32),
    "FP4": np.array((*_FP4, *(-value for value in _FP4)), np.float32),
}
"""Native schemes of 4-bit codes, and what a code means to the library that writes them."""

CODE_UNITS = {"NF4": 0.008926163, "FP4": 1 / 120}
"""What one step of these schemes' integers (native/kernels/format.h) is of that."""


def code_blocks(
    name: str, codes: NDArray[np.uint8], scales: Floats, run: int
) -> NDArray[np.uint8] | None:
    """codes, flat, with a scale for `run` of them, as blocks, flat; None if a scale is beyond the
    range of half precision."""
    with np.errstate(over="ignore"):
        halves = (scales * np.float32(CODE_UNITS[name])).astype(np.float16)
    if not np.isfinite(halves).all():
        return None
    pairs = _pairs(codes.reshape(-1, GROUP))
    d = np.repeat(halves, run // GROUP)[: len(pairs), None].view(np.uint8)
    return np.concatenate([d, pairs], axis=1).reshape(-1)


RANGES = {
    "Q4_0": (-8, 7),
    "Q4_Z128": (-16, 15),
    "Q4_Z": (-16, 15),
    "Q5_0": (-16, 15),
    "Q8_0": (-128, 127),
    "Q8_Z128": (-256, 255),
    "Q8_Z": (-256, 255),
}
"""Native schemes, and the integers (less their zero points) that each holds exactly; the smallest
first."""


@dataclass(frozen=True)
class ZeroCodes:
    """Schemes of w = d * (q - zero): q of so many bits from 0 up, and `run` columns share d and
    zero, which is stored less `offset` in so many bytes."""

    bits: int
    run: int
    zero_bytes: int
    offset: int = 0


ZERO_CODES = {
    "Q4_Z": ZeroCodes(4, 32, 1),
    "Q4_Z128": ZeroCodes(4, 128, 2),
    "Q8_Z128": ZeroCodes(8, 128, 2, offset=128),
    "Q8_Z": ZeroCodes(8, 32, 2, offset=128),
}


def _pairs(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., 32] codes below 16 -> [..., 16]: the first half in the low bits."""
    paired: NDArray[np.uint8] = codes[..., :16] | codes[..., 16:] << np.uint8(4)
    return paired


def _zero_blocks(
    name: str, q: NDArray[np.signedinteger[Any]], scales: NDArray[np.float16]
) -> NDArray[np.uint8]:
    """The same for schemes with zero points: of each run, the least that leaves no code below 0."""
    kind = ZERO_CODES[name]
    runs = q.astype(np.int16).reshape(-1, kind.run)
    zeros = np.maximum(-runs.min(axis=1), 0).astype(np.int16)
    codes = (runs + zeros[:, None]).astype(np.uint8).reshape(-1, GROUP)
    repeats = kind.run // GROUP
    stored = np.repeat(zeros - np.int16(kind.offset), repeats)[:, None]
    d = np.repeat(scales.reshape(-1), len(codes) // scales.size)[:, None]
    parts = [
        d.view(np.uint8),
        np.ascontiguousarray(stored).view(np.uint8)[:, : kind.zero_bytes],
        _pairs(codes) if kind.bits == 4 else codes,
    ]
    return np.concatenate(parts, axis=1).reshape(-1)


def integer_blocks(
    name: str, q: NDArray[np.signedinteger[Any]], scales: NDArray[np.float16]
) -> NDArray[np.uint8]:
    """q [N, K] with scales [N, G], K / G a multiple of 32, as GGUF blocks, flat."""
    if name in ZERO_CODES:
        return _zero_blocks(name, q, scales)
    runs = q.reshape(-1, GROUP)
    repeats = len(runs) // scales.size
    d = np.repeat(scales.reshape(-1), repeats)[:, None].view(np.uint8)
    if name == "Q8_0":
        return np.concatenate([d, runs.astype(np.int8, copy=False).view(np.uint8)], axis=1).reshape(
            -1
        )
    unsigned: NDArray[np.uint8] = (runs - RANGES[name][0]).astype(np.uint8)
    pairs = _pairs(unsigned & np.uint8(15))
    if name == "Q4_0":
        return np.concatenate([d, pairs], axis=1).reshape(-1)
    fifth = np.packbits(unsigned >> np.uint8(4), axis=1, bitorder="little")
    return np.concatenate([d, fifth, pairs], axis=1).reshape(-1)

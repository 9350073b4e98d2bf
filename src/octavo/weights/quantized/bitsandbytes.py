"""bitsandbytes: codes of 4 bits with a scale for 64 numbers (Dettmers et al. 2023), or int8 by row.

4 bits: weight [N*K/2, 1] bytes, the first of two codes in the high bits, counted along the rows;
w = quant_map[code] * absmax of its run. absmax float32, or quantized itself ("double"):
nested_quant_map[absmax] * nested_absmax of 256 + nested_offset. quant_state, JSON in a tensor of
bytes, has the shape. 8 bits: weight int8 [N, K], w = q * SCB[n] / 127.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.json_object import parse_json_object
from octavo.weights.quantized.bits import nibbles
from octavo.weights.quantized.choose import code_scheme, scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import (
    Codes,
    FloatOrigin,
    Floats,
    IntegerOrigin,
    Integers,
    code_blocks,
)
from octavo.weights.quantized.parts import Module
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import DerivedTensor

_STATES = (
    ".weight.quant_state.bitsandbytes__nf4",
    ".weight.quant_state.bitsandbytes__fp4",
)
_KNOWN = (
    *("quant_method", "load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"),
    *("bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_quant_type"),
    *("bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload", "llm_int8_skip_modules"),
    *("llm_int8_has_fp16_weight", "llm_int8_threshold"),
)


@dataclass(frozen=True)
class FourBit:
    """nf4 and fp4: the file has the table of values."""

    endings = (
        *(".weight", ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax"),
        *(".weight.nested_quant_map", *_STATES),
    )
    marks = _STATES
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        state = _state(module)
        n, k = state.shape
        weight = module.part(".weight")
        if weight.data.nbytes * 2 != n * k:
            raise FormatError(f"{weight.where}: {weight.data.nbytes} bytes, expected {n * k // 2}")
        table = module.part(".weight.quant_map").check(("F32",), 16).floats()
        runs = -(-n * k // state.run)
        absmax = module.part(".weight.absmax").check(("U8" if state.nested else "F32",), runs)
        if state.nested:
            module.part(".weight.nested_quant_map").check(("F32",), 256)
            nested = -(-absmax.shape[0] // state.nested)
            module.part(".weight.nested_absmax").check(("F32",), nested)
        scheme = code_scheme(table, state.run, k)
        return DerivedTensor(f"{module.name}.weight", (n, k), scheme, _CodeOrigin(module, state))


@dataclass(frozen=True)
class _State:
    """run: codes that share a scale. nested: scales that share one, 0 where they are floats."""

    shape: tuple[int, int]
    run: int
    nested: int
    offset: float


def _state(module: Module) -> _State:
    part = next(module.parts[name] for name in _STATES if module.has(name))
    part.check(("U8",), None)
    if part.shape[0] > 1 << 16:
        raise FormatError(f"{part.where}: {part.shape[0]} bytes, expected at most {1 << 16}")
    fields = Fields(part.where, parse_json_object(part.data.tobytes(), part.where))
    shape = fields.values.get("shape")
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 2 or not all(type(s) is int and 0 < s < 1 << 31 for s in sizes):
        raise fields.error("shape", "two sizes above 0")
    nested = fields.integer("nested_blocksize", default=0)
    offset = fields.values.get("nested_offset", 0.0)
    run = fields.integer("blocksize")
    if run < 1 or nested < 0 or not isinstance(offset, (int, float)):
        raise FormatError(f"{part.where}: blocksize {run}, nested {nested}, offset {offset!r:.40}")
    return _State((sizes[0], sizes[1]), run, nested, float(offset))


class _CodeOrigin(FloatOrigin):
    def __init__(self, module: Module, state: _State) -> None:
        super().__init__(module)
        self._state = state

    def codes(self) -> Codes:
        n, k = self._state.shape
        table = self.module.part(".weight.quant_map").floats()
        data, run = self.module.part(".weight").data, self._state.run
        return Codes(data, table, (1, n * k), self._scales()[None], (1, run))

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        if scheme.block_elems == 1:
            return super().blocks(scheme)
        codes = nibbles(self.module.part(".weight").data, high_first=True)
        blocks = code_blocks(scheme.name, codes, self._scales(), self._state.run)
        if blocks is None:
            raise self._too_large()
        return blocks

    def values(self) -> Floats:
        codes = nibbles(self.module.part(".weight").data, high_first=True)
        numbers = self.module.part(".weight.quant_map").floats()[codes]
        scales = np.repeat(self._scales(), self._state.run)[: len(numbers)]
        return (numbers * scales).reshape(self._state.shape)

    def _scales(self) -> Floats:
        absmax = self.module.part(".weight.absmax")
        if not self._state.nested:
            return absmax.floats()
        numbers = self.module.part(".weight.nested_quant_map").floats()[absmax.data]
        outer = np.repeat(self.module.part(".weight.nested_absmax").floats(), self._state.nested)
        return numbers * outer[: len(numbers)] + np.float32(self._state.offset)


@dataclass(frozen=True)
class EightBit:
    """LLM.int8(): the part of it that is stored; no column is treated apart when running."""

    endings = (".weight", ".SCB", ".weight_format")
    marks = (".SCB",)
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        n, k = module.part(".weight").check(("I8",), None, None).shape
        module.part(".SCB").check(("F32",), n)
        if module.has(".weight_format"):
            layout = module.part(".weight_format")
            if layout.data.size != 1 or layout.data[0] != 0:
                raise UnsupportedError(f"{layout.where}: a layout other than by row")
        scheme = scheme_for(-128, 127, k, k)
        return DerivedTensor(f"{module.name}.weight", (n, k), scheme, _RowOrigin(module))


class _RowOrigin(IntegerOrigin):
    def integers(self) -> Integers:
        q = self.module.part(".weight").array().astype(np.int8, copy=False)
        scales = self.module.part(".SCB").floats() / np.float32(127)
        return Integers(q, scales[:, None])


def read(fields: Fields) -> FourBit | EightBit:
    """Which of the two it is."""
    fields.only(_KNOWN)
    four, eight = fields.flag("load_in_4bit", False), fields.flag("load_in_8bit", False)
    if four == eight:
        raise fields.error("load_in_4bit", "one of load_in_4bit and load_in_8bit")
    if not four:
        return EightBit()
    fields.choice("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
    return FourBit()

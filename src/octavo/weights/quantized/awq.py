"""AWQ in AutoAWQ's "gemm" layout (Lin et al. 2023): w = (q - zero) * scale.

qweight int32 [K, N/8] and qzeros int32 [K/group, N/8] hold eight columns a word, in the order
0 2 4 6 1 3 5 7 from the lowest bits; scales float [K/group, N].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.quantized.bits import unpack_words
from octavo.weights.quantized.choose import integer_range, scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import IntegerOrigin, Integers, Words
from octavo.weights.quantized.parts import FLOATS, Module
from octavo.weights.tensor import DerivedTensor

_PLACES = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])
"""Nibble of a word that holds each of its eight columns."""
_KNOWN = (
    *("quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version"),
    *("modules_to_not_convert", "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse"),
    *("exllama_config", "desc_act", "format", "lm_head"),
)


@dataclass(frozen=True)
class Awq:
    """group: rows of K that share a scale, -1 for all."""

    group: int
    endings = (".qweight", ".qzeros", ".scales")
    marks = (".qweight",)
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        packed = module.part(".qweight").check(("I32",), None, None)
        k, n = packed.shape[0], packed.shape[1] * 8
        group = k if self.group == -1 else self.group
        if k % group:
            raise FormatError(f"{packed.where}: {k} rows, expected a multiple of {group}, a group")
        module.part(".qzeros").check(("I32",), k // group, n // 8)
        module.part(".scales").check(FLOATS, k // group, n)
        scheme = scheme_for(*integer_range(4, False, 15), group, k, 4)
        return DerivedTensor(f"{module.name}.weight", (n, k), scheme, _AwqOrigin(module))


class _AwqOrigin(IntegerOrigin):
    def integers(self) -> Integers:
        q, zeros = self._columns(".qweight"), self._columns(".qzeros")
        group = len(q) // len(zeros)
        q -= np.repeat(zeros, group, axis=0)
        scales = self.module.part(".scales").floats()
        return Integers(np.ascontiguousarray(q.T), np.ascontiguousarray(scales.T))

    def words(self) -> Words:
        words = self.module.part(".qweight").array().astype(np.int32, copy=False)
        zeros = np.ascontiguousarray(self._columns(".qzeros").T)
        scales = np.ascontiguousarray(self.module.part(".scales").floats().T)
        k, row = words.shape
        return Words(words, 4, k, (0, 0, row), zeros, scales, interleaved=True)

    def _columns(self, ending: str) -> NDArray[np.int16]:
        """[rows, N] of packed words."""
        words = self.module.part(ending).array().astype(np.int32)
        eights = unpack_words(words, 4).reshape(len(words), -1, 8)
        return eights[:, :, _PLACES].reshape(len(words), -1).astype(np.int16)


def read(fields: Fields) -> Awq:
    """Refuses other layouts, and AWQ without zero points."""
    fields.only(_KNOWN)
    fields.choice("version", ("gemm",), "gemm")
    bits = fields.integer("bits", "w_bit")
    if bits != 4:
        raise fields.error("bits", "4")
    if not fields.flag("zero_point", True):
        raise fields.error("zero_point", "true")
    group = fields.integer("group_size", "q_group_size")
    if group == 0:
        raise fields.error("group_size", "-1 or above 0")
    return Awq(group)

"""GPTQ as AutoGPTQ and GPTQModel write it (Frantar et al. 2022): w = (q - zero) * scale[group].

qweight int32 [K bits/32, N]: a stream of bits down each column; qzeros int32 [G, N bits/32]: the
same along a row, holding zero - 1 in the first format ("gptq") and zero in the second ("gptq_v2");
scales float [G, N]; g_idx int32 [K]: the group of each input, K / G in a row each unless the model
was quantized in the order of activations (desc_act).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.quantized.bits import unpack_stream
from octavo.weights.quantized.choose import grouped, integer_range, scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.origins import GROUP, Floats, IntegerOrigin, Integers, Words
from octavo.weights.quantized.parts import FLOATS, Module, Part
from octavo.weights.tensor import DerivedTensor

_KNOWN = (
    *("quant_method", "bits", "group_size", "desc_act", "sym", "checkpoint_format", "format"),
    *("static_groups", "true_sequential", "lm_head", "damp_percent", "damp_auto_increment"),
    *("model_name_or_path", "model_file_base_name", "dynamic", "meta", "pack_dtype", "backend"),
    *("dataset", "tokenizer", "batch_size", "pad_token_id", "model_seqlen", "exllama_config"),
    *("disable_exllama", "use_exllama", "use_cuda_fp16", "max_input_length", "is_marlin_format"),
    *("block_name_to_quantize", "module_name_preceding_first_block", "quantizer", "mse"),
    *("act_group_aware", "fail_safe", "offload_to_disk", "pack_impl", "v2_alpha", "gptaq_alpha"),
    *("modules_in_block_to_quantize", "cache_block_outputs", "modules_to_not_convert"),
)
"""Those that change how weights are stored are read below; the others tell of the making."""


@dataclass(frozen=True)
class Gptq:
    """group: -1 for all of K. offset: what to add to a stored zero point."""

    bits: int
    group: int
    symmetric: bool
    offset: int
    endings = (".qweight", ".qzeros", ".scales", ".g_idx")
    marks = (".qweight",)
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        packed = module.part(".qweight").check(("I32",), None, None)
        k, n = packed.shape[0] * 32 // self.bits, packed.shape[1]
        if packed.shape[0] * 32 % self.bits or n * self.bits % 32:
            whole = "rows and columns of whole words"
            raise FormatError(f"{packed.where}: {list(packed.shape)}, expected {whole}")
        group = k if self.group == -1 else self.group
        groups = -(-k // group)
        module.part(".qzeros").check(("I32",), groups, n * self.bits // 32)
        module.part(".scales").check(FLOATS, groups, n)
        spread = _spread(module.parts.get(".g_idx"), k, group)
        low, high = integer_range(self.bits, self.symmetric, (1 << self.bits) - 1 + self.offset)
        name, scheme = f"{module.name}.weight", scheme_for(low, high, group, k, self.bits)
        if spread is not None:
            origin = partial(_GptqOrigin, module, self, spread)
            return grouped(name, (n, k), scheme, origin, spread, group)
        return DerivedTensor(name, (n, k), scheme, _GptqOrigin(module, self, None))


def _spread(part: Part | None, k: int, group: int) -> NDArray[np.int64] | None:
    """The group of each input, or None where they lie in order."""
    if part is None:
        return None
    found = part.check(("I32",), k).integers()
    groups = -(-k // group)
    if found.min() < 0 or found.max() >= groups:
        got = f"{found.min()} to {found.max()}"
        raise FormatError(f"{part.where}: got groups {got}, expected 0 to {groups - 1}")
    return None if np.array_equal(found, np.arange(k) // group) else found


class _GptqOrigin(IntegerOrigin):
    """spread: the group of each column, None where they lie in order. order: that of columns."""

    def __init__(
        self,
        module: Module,
        method: Gptq,
        spread: NDArray[np.int64] | None,
        order: NDArray[np.int32] | None = None,
    ) -> None:
        super().__init__(module)
        self._method = method
        self._spread = spread
        self._order = order

    def words(self) -> Words | None:
        if self._spread is not None and self._order is None:
            return None
        bits = self._method.bits
        words = self._words()
        n, k = words.shape[1], len(words) * 32 // bits
        strides, order = (1, bits * n, n), self._order
        zeros, scales = self._zeros(), self._scales()
        if self._is_ragged(k):  # the last group is short: by blocks instead
            of_block = np.arange(0, k, GROUP) // self._method.group
            zeros, scales = zeros[:, of_block], scales[:, of_block]
        return Words(words, bits, k, strides, zeros, scales, order=order)

    def _is_ragged(self, columns: int) -> bool:
        """Whether the last group has fewer columns than the others."""
        return self._method.group != -1 and columns % self._method.group > 0

    def _words(self) -> NDArray[np.int32]:
        return self.module.part(".qweight").array().astype(np.int32, copy=False)

    def _zeros(self) -> NDArray[np.int16]:
        """[N, G]."""
        words = self.module.part(".qzeros").array().astype(np.int32)
        zeros = unpack_stream(words, self._method.bits).astype(np.int16)
        return np.ascontiguousarray(zeros.T) + np.int16(self._method.offset)

    def _scales(self) -> Floats:
        """[N, G]."""
        return np.ascontiguousarray(self.module.part(".scales").floats().T)

    def integers(self) -> Integers:
        by_row = np.ascontiguousarray(self._words().T)
        q = unpack_stream(by_row, self._method.bits).astype(np.int16)  # [N, K]
        zeros, scales = self._zeros(), self._scales()
        if self._spread is not None and self._order is None:
            return Integers(q - zeros[:, self._spread], scales, self._spread)
        q = q if self._order is None else q[:, self._order]
        if self._is_ragged(q.shape[1]):
            group_of = np.arange(q.shape[1]) // self._method.group
            return Integers(q - zeros[:, group_of], scales, group_of)
        groups = zeros.shape[1]
        centred = q.reshape(len(q), groups, -1) - zeros[:, :, None]
        return Integers(centred.reshape(q.shape), scales)


def read(fields: Fields) -> Gptq:
    """Refuses other layouts than GPTQ's own, and settings of single modules."""
    fields.only(_KNOWN)
    bits = fields.integer("bits")
    if bits not in (2, 3, 4, 8):
        raise fields.error("bits", "2, 3, 4 or 8")
    if fields.values.get("dynamic"):
        raise UnsupportedError(f"{fields.where}: 'dynamic': settings of single modules")
    if fields.flag("is_marlin_format", False):
        raise fields.error("is_marlin_format", "false")
    group = fields.integer("group_size")
    if group == 0:
        raise fields.error("group_size", "-1 or above 0")
    known = ("gptq", "gptq_v2")
    key = "checkpoint_format" if fields.has("checkpoint_format") else "format"
    second = fields.choice(key, known, "gptq") == "gptq_v2"
    fields.choice("pack_dtype", ("int32",), "int32")
    fields.flag("desc_act", False)  # g_idx says which
    return Gptq(bits, group, fields.flag("sym", True), 0 if second else 1)

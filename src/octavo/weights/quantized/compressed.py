"""compressed-tensors (llm-compressor): groups of modules, each with its number format.

pack-quantized: weight_packed int32 [N, K / (32 // bits)] holds q + 2^(bits-1), the lowest bits
first; weight_zero_point, if not symmetric, the same downwards: int32 [N / (32 // bits), G].
int-quantized: weight int8 [N, K], weight_zero_point int8 [N, G]. float-quantized: weight e4m3.
weight_scale is [N, G], [N, 1], [1], or one for each block of rows and columns.
w = (q - zero) * scale. What is said of activations is for other kernels: here they are quantized by
groups of 32, whatever the file says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.quantized.bits import unpack_words
from octavo.weights.quantized.choose import float8_scheme, grouped, integer_range, scheme_for
from octavo.weights.quantized.fields import Fields
from octavo.weights.quantized.fp8 import SCALES, Float8Origin, block_of, check_scale
from octavo.weights.quantized.microscaling import packed_floats
from octavo.weights.quantized.origins import Floats, IntegerOrigin, Integers, Words
from octavo.weights.quantized.parts import FLOAT8, FLOATS, Module, Part
from octavo.weights.quantized.targets import Targets
from octavo.weights.tensor import DerivedTensor

_KNOWN = (
    *("quant_method", "format", "quantization_status", "config_groups", "ignore", "version"),
    *("kv_cache_scheme", "global_compression_ratio", "sparsity_config", "transform_config"),
    "run_compressed",
)
_FORMATS = (
    *("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized", "dense"),
)
_GROUP = ("targets", "weights", "input_activations", "output_activations", "format")
_WEIGHTS = (
    *("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "dynamic"),
    *("actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "is_mx"),
)
_STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")


@dataclass(frozen=True)
class Arguments:
    """How the weights of a group are quantized. group: -1 for a whole row."""

    bits: int
    kind: str
    symmetric: bool
    strategy: str
    group: int
    block: tuple[int, int] | None


@dataclass(frozen=True)
class Compressed:
    """groups: targets and arguments, the first that fits counts."""

    where: str
    groups: tuple[tuple[Targets, Arguments], ...]
    ignored: Targets
    endings = (
        *(".weight", ".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape"),
        *(".weight_g_idx", ".weight_global_scale", ".input_scale", ".input_zero_point"),
        *(".input_global_scale", ".output_scale", ".output_zero_point"),
    )
    marks = (".weight_packed", ".weight_scale")
    result = ".weight"

    def weight(self, module: Module) -> DerivedTensor:
        """See table.Method."""
        arguments = self._arguments(module.name)
        if arguments.kind == "float":
            return self._floats(module, arguments)
        if module.has(".weight_packed"):
            return _packed(module, arguments)
        return _bytes(module, arguments)

    def _floats(self, module: Module, arguments: Arguments) -> DerivedTensor:
        if arguments.bits == 4:
            return packed_floats(module, arguments.group)
        if arguments.bits != 8:
            raise UnsupportedError(f"{self.where}: floats of {arguments.bits} bits; expected 4, 8")
        weight = module.part(".weight").check(tuple(FLOAT8), None, None)
        n, k = weight.shape
        scale = module.part(".weight_scale")
        block = arguments.block if arguments.strategy == "block" else None
        if arguments.strategy == "group":
            block = (1, _whole(weight, k, arguments.group))
        if block is None:
            check_scale(scale, n)
        else:
            scale.check(SCALES, -(-n // block[0]), -(-k // block[1]))
        scheme, origin = float8_scheme(weight.dtype, k, block), Float8Origin(module, scale, block)
        return DerivedTensor(f"{module.name}.weight", (n, k), scheme, origin)

    def _arguments(self, name: str) -> Arguments:
        if self.ignored.match(name):
            raise FormatError(
                f"{self.where}: module '{name}' is in 'ignore', but the file holds it quantized"
            )
        named = [a for targets, a in self.groups if targets.match(name)]
        found = named or [a for targets, a in self.groups if targets.every_linear]
        if not found:
            raise FormatError(f"{self.where}: no config group has module '{name}' in its targets")
        return found[0]


def _whole(part: Part, columns: int, group: int) -> int:
    """Columns of a group. Raises FormatError unless they divide a row."""
    group = columns if group == -1 else group
    if columns % group:
        raise FormatError(f"{part.where}: {columns} columns, expected a multiple of {group}")
    return group


def _packed(module: Module, a: Arguments) -> DerivedTensor:
    """pack-quantized."""
    packed = module.part(".weight_packed").check(("I32",), None, None)
    stored = module.part(".weight_shape").check(("I64", "I32"), 2)
    n, k = (int(size) for size in stored.integers())
    per_word = 32 // a.bits
    if n != packed.shape[0] or not 0 <= packed.shape[1] * per_word - k < per_word:
        got = f"{list(packed.shape)} words of {per_word}"
        raise FormatError(f"{packed.where}: got {got}, expected [{n}, {k}] numbers in them")
    group = _whole(packed, k, a.group)
    module.part(".weight_scale").check(FLOATS, n, k // group)
    if not a.symmetric:
        module.part(".weight_zero_point").check(("I32",), -(-n // per_word), k // group)
    spread = _spread(module, k, group)
    low, high = integer_range(a.bits, a.symmetric, (1 << a.bits) - 1)
    name, scheme = f"{module.name}.weight", scheme_for(low, high, group, k, a.bits)
    if spread is not None:
        origin = partial(_PackOrigin, module, a, spread)
        return grouped(name, (n, k), scheme, origin, spread, group)
    return DerivedTensor(name, (n, k), scheme, _PackOrigin(module, a, None))


def _spread(module: Module, k: int, group: int) -> NDArray[np.int64] | None:
    """The group of each column, or None where they lie in order."""
    if not module.has(".weight_g_idx"):
        return None
    part = module.part(".weight_g_idx").check(("I32", "I64"), k)
    found = part.integers()
    if found.min() < 0 or found.max() >= k // group:
        got = f"{found.min()} to {found.max()}"
        raise FormatError(f"{part.where}: got groups {got}, expected 0 to {k // group - 1}")
    return None if np.array_equal(found, np.arange(k) // group) else found


class _PackOrigin(IntegerOrigin):
    """spread: the group of each column, None where they lie in order. order: that of columns."""

    def __init__(
        self,
        module: Module,
        a: Arguments,
        spread: NDArray[np.int64] | None,
        order: NDArray[np.int32] | None = None,
    ) -> None:
        super().__init__(module)
        self._arguments = a
        self._spread = spread
        self._order = order

    def words(self) -> Words | None:
        bits = self._arguments.bits
        if self._is_spread or bits not in (2, 4, 8):  # others leave bits of a word unused
            return None
        words = self._words()
        scales = self.module.part(".weight_scale").floats()
        k, strides, order = self._shape()[1], (words.shape[1], bits, 1), self._order
        return Words(words, bits, k, strides, self._zeros(), scales, order=order)

    @property
    def _is_spread(self) -> bool:
        return self._spread is not None and self._order is None

    def _words(self) -> NDArray[np.int32]:
        return self.module.part(".weight_packed").array().astype(np.int32, copy=False)

    def _shape(self) -> tuple[int, int]:
        n, k = (int(size) for size in self.module.part(".weight_shape").integers())
        return n, k

    def _zeros(self) -> NDArray[np.int16]:
        """[N, G], of codes."""
        bits, scale = self._arguments.bits, self.module.part(".weight_scale")
        if self._arguments.symmetric:
            return np.full(scale.shape, 1 << (bits - 1), np.int16)
        words = self.module.part(".weight_zero_point").array().astype(np.int32)
        return unpack_words(words.T, bits)[:, : scale.shape[0]].T.astype(np.int16)

    def integers(self) -> Integers:
        n, k = self._shape()
        q = unpack_words(self._words(), self._arguments.bits)[:, :k].astype(np.int16)
        scales, zeros = self.module.part(".weight_scale").floats(), self._zeros()
        if self._spread is not None and self._order is None:
            return Integers(q - zeros[:, self._spread], scales, self._spread)
        q = q if self._order is None else q[:, self._order]
        centred = q.reshape(n, scales.shape[1], -1) - zeros[:, :, None]
        return Integers(centred.reshape(n, k), scales)


def _bytes(module: Module, a: Arguments) -> DerivedTensor:
    """int-quantized."""
    weight = module.part(".weight").check(("I8",), None, None)
    n, k = weight.shape
    if a.strategy == "block":
        raise UnsupportedError(f"{weight.where}: integers with scales of blocks")
    group = _whole(weight, k, a.group)
    scale, groups = module.part(".weight_scale"), k // group
    endings = [".weight_scale"] if a.symmetric else [".weight_scale", ".weight_zero_point"]
    for part in map(module.part, endings):
        shapes: list[tuple[int, ...]] = [(n, groups)]
        shapes += [(n,), (), (1,), (1, 1)] if groups == 1 else []
        if part.shape not in shapes or (part is scale and part.dtype not in FLOATS):
            got = f"{part.dtype} {list(part.shape)}"
            raise FormatError(f"{part.where}: got {got}, expected [{n}, {groups}]")
    if not a.symmetric and module.part(".weight_zero_point").dtype != "I8":
        part = module.part(".weight_zero_point")
        raise FormatError(f"{part.where}: got dtype {part.dtype}, expected I8")
    scheme = scheme_for(*integer_range(8, a.symmetric, 255), group, k)
    return DerivedTensor(f"{module.name}.weight", (n, k), scheme, _ByteOrigin(module, a, groups))


class _ByteOrigin(IntegerOrigin):
    def __init__(self, module: Module, a: Arguments, groups: int) -> None:
        super().__init__(module)
        self._symmetric = a.symmetric
        self._groups = groups

    def integers(self) -> Integers:
        q = self.module.part(".weight").array().astype(np.int8, copy=False)
        scales = self._each(self.module.part(".weight_scale").floats(), len(q))
        if not self._symmetric:
            stored = self.module.part(".weight_zero_point").floats()
            zeros = self._each(stored, len(q)).astype(np.int16)
            runs = q.astype(np.int16).reshape(len(q), self._groups, -1) - zeros[:, :, None]
            return Integers(runs.reshape(q.shape), scales)
        return Integers(q, scales)

    def _each(self, stored: Floats, rows: int) -> Floats:
        """One for every row and group."""
        columns = stored.reshape(-1, self._groups)
        return np.ascontiguousarray(np.broadcast_to(columns, (rows, self._groups)))


def read(fields: Fields) -> Compressed:
    """Refuses sparsity, rotations, and formats whose packing is not known here."""
    fields.only(_KNOWN)
    fields.choice("quantization_status", ("compressed", "frozen"), "compressed")
    fields.choice("format", _FORMATS)
    _refuse_sparse(fields)
    groups = []
    found = fields.under("config_groups")
    for key in found.values:
        group = found.under(key)
        group.only(_GROUP)
        if group.has("format"):
            group.choice("format", _FORMATS)
        if group.has("weights"):
            targets = Targets(group.where, group.strings("targets"))
            groups.append((targets, _read_arguments(group.under("weights"))))
    ignored = Targets(f"{fields.where}: ignore", fields.strings("ignore"))
    return Compressed(fields.where, tuple(groups), ignored)


def _refuse_sparse(fields: Fields) -> None:
    for key in ("sparsity_config", "transform_config"):
        value = fields.values.get(key)
        dense = isinstance(value, dict) and value.get("format") == "dense"
        if value and not dense:
            raise UnsupportedError(f"{fields.where}: '{key}': got {value!r:.80}, expected none")


def _read_arguments(fields: Fields) -> Arguments:
    fields.only(_WEIGHTS)
    if fields.values.get("dynamic") is True:
        raise fields.error("dynamic", "false for weights")
    bits = fields.integer("num_bits", default=8)
    kind = fields.choice("type", ("int", "float"), "int")
    if not 2 <= bits <= 8:
        raise fields.error("num_bits", "2 to 8")
    group = fields.integer("group_size", default=-1)
    if group == 0:
        raise fields.error("group_size", "-1 or above 0")
    strategy = fields.choice("strategy", _STRATEGIES, "channel" if group == -1 else "group")
    if strategy in ("group", "tensor_group") and group == -1:
        raise fields.error("group_size", "a size above 0")
    if strategy in ("tensor", "channel", "block"):
        group = -1
    block = block_of(fields, "block_structure")
    if strategy == "block" and block is None:
        raise fields.error("block_structure", "two sizes above 0")
    return Arguments(bits, kind, fields.flag("symmetric", True), strategy, group, block)

"""In which form a type's matrices are kept for computing: its own, or another that holds the same
numbers exactly and takes more memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import prod

from msgspec import Struct

from octavo.weights.scheme import SCHEMES, SCHEMES_BY_TYPE, Scheme
from octavo.weights.tensor import Tensor

TABLE_NAME = "4-bit codes"
_FLOATS = frozenset({"F32", "F16", "BF16", "E5M2"})


@cache
def kept_as(scheme: Scheme) -> str:
    """Name of the form: a scheme's name, or TABLE_NAME for codes into a table of 16 numbers."""
    from octavo import _native

    if not scheme.native:
        return scheme.name
    panels = _native.panel_type(scheme.ggml_type)
    return TABLE_NAME if panels == _native.TABLE_PANELS else SCHEMES_BY_TYPE[panels].name


def is_kept_as_floats(scheme: Scheme) -> bool:
    """Whether its products take float activations; the others take them rounded to int8."""
    return kept_as(scheme) in _FLOATS


def kept_bytes(tensor: Tensor) -> int:
    """Bytes of a matrix [..., N, K] in that form. Vectors are kept as float32."""
    from octavo import _native

    if len(tensor.shape) < 2 or not tensor.scheme.native:
        return 4 * tensor.size
    rows, columns = tensor.shape[-2:]
    count = prod(tensor.shape[:-2])
    return count * _native.packed_bytes(tensor.scheme.ggml_type, rows, columns)


class Expansion(Struct, frozen=True):
    """Matrices of one type that are kept in another form, and the bytes that this costs."""

    scheme: Scheme
    kept_as: str
    extra_bytes: int

    def __str__(self) -> str:
        more = f"{self.extra_bytes / 1e6:.1f} MB more"
        return f"type {self.scheme.name} is kept as {self.kept_as}: {more}"


def expansions(matrices: Iterable[Tensor]) -> tuple[Expansion, ...]:
    """One for each type that is not kept as itself, the most expensive first."""
    extra: dict[Scheme, int] = {}
    for tensor in matrices:
        filed = tensor.scheme.name in SCHEMES
        if filed and tensor.scheme.native and kept_as(tensor.scheme) != tensor.scheme.name:
            more = kept_bytes(tensor) - tensor.num_bytes
            extra[tensor.scheme] = extra.get(tensor.scheme, 0) + more
    found = (Expansion(scheme, kept_as(scheme), more) for scheme, more in extra.items())
    return tuple(sorted(found, key=lambda expansion: -expansion.extra_bytes))

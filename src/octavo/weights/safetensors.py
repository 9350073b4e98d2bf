"""Safetensors files: a JSON header that is checked in full before anything is viewed.

Layout: header length (uint64, little-endian), the JSON header, the data. The header maps each name
to a dtype, a shape and [begin, end) offsets into the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.json_object import parse_json_object
from octavo.weights.mapping import map_file
from octavo.weights.scheme import SCHEMES
from octavo.weights.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from octavo._native import MappedFile

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMS = 8

DTYPE_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
_READABLE = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class Entry:
    """One tensor of the header; begin and end are offsets into the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Bytes of its data."""
        return self.end - self.begin


@dataclass(frozen=True)
class SafetensorsFile:
    """A mapped file and its checked header."""

    path: Path
    map: MappedFile
    entries: dict[str, Entry]

    def tensor(self, stored_name: str, name: str) -> Tensor:
        """View one tensor under the name `name`. Raises UnsupportedError naming its dtype."""
        entry = self.entries[stored_name]
        if entry.dtype not in _READABLE:
            raise UnsupportedError(
                f"{self.path}: tensor '{stored_name}' has dtype {entry.dtype}, which is not"
                f" supported; expected one of {', '.join(_READABLE)}"
            )
        data = self.map.array()[entry.begin : entry.end]
        home = f"{self.path}: tensor '{stored_name}'"
        return Tensor(name, entry.shape, SCHEMES[entry.dtype], data, home)


def open_safetensors(path: Path) -> SafetensorsFile:
    """Map a file and check its header. Raises FormatError naming the file and the field."""
    file_map = map_file(path)
    try:
        return SafetensorsFile(path, file_map, read_entries(file_map.array()))
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def read_entries(file: NDArray[np.uint8]) -> dict[str, Entry]:
    """Check the header of a whole file's bytes. Raises FormatError naming the field."""
    header, data_begin = _header(file)
    entries = {
        name: _entry(name, fields, data_begin, file.size)
        for name, fields in header.items()
        if name != "__metadata__"
    }
    _check_overlaps(entries)
    return entries


def _header(file: NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    if file.size < 8:
        raise FormatError(f"header length: the file has {file.size} bytes, expected at least 8")
    length = int.from_bytes(file[:8].tobytes(), "little")
    if length > min(file.size - 8, MAX_HEADER_BYTES):
        raise FormatError(
            f"header length: claims {length} bytes; {file.size - 8} follow in the file, and the"
            f" limit is {MAX_HEADER_BYTES}"
        )
    return parse_json_object(file[8 : 8 + length].tobytes(), "header"), 8 + length


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _sizes(name: str, fields: dict[str, Any], key: str) -> list[int]:
    value = fields.get(key)
    if not isinstance(value, list) or not all(_is_size(size) for size in value):
        raise FormatError(f"tensor {name!r} {key}: expected a list of sizes, got {value!r:.80}")
    return value


def _entry(name: str, fields: object, data_begin: int, file_size: int) -> Entry:
    if not isinstance(fields, dict):
        raise FormatError(f"tensor {name!r}: expected an object, got {fields!r:.80}")
    dtype = fields.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise FormatError(f"tensor {name!r} dtype: {dtype!r:.80} is not a known dtype")
    shape = _sizes(name, fields, "shape")
    if len(shape) > MAX_DIMS:
        raise FormatError(f"tensor {name!r} shape: {len(shape)} dimensions, at most {MAX_DIMS}")
    offsets = _sizes(name, fields, "data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1] or data_begin + offsets[1] > file_size:
        raise FormatError(
            f"tensor {name!r} data_offsets: {offsets!r:.80} is not a range inside the"
            f" {file_size - data_begin} bytes of data; is the file truncated?"
        )
    _check_size(name, dtype, shape, offsets[1] - offsets[0])
    return Entry(name, dtype, tuple(shape), data_begin + offsets[0], data_begin + offsets[1])


def _check_size(name: str, dtype: str, shape: list[int], size_bytes: int) -> None:
    expected = DTYPE_BYTES[dtype]
    for size in shape:
        expected *= size
    if expected != size_bytes:
        raise FormatError(
            f"tensor {name!r} data_offsets: {size_bytes} bytes, but shape {shape} of {dtype}"
            f" takes {expected}"
        )


def _check_overlaps(entries: dict[str, Entry]) -> None:
    order = sorted((entry for entry in entries.values() if entry.end > entry.begin), key=_begin)
    for before, after in pairwise(order):
        if before.end > after.begin:
            raise FormatError(
                f"tensor {after.name!r} data_offsets: its data overlaps that of {before.name!r}"
            )


def _begin(entry: Entry) -> int:
    return entry.begin

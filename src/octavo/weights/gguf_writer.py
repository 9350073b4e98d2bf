"""Writing GGUF files: the header from metadata and tensor sizes, then the data as it comes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.scheme import Scheme

ALIGNMENT = 32
VERSION = 3
MAX_NAME_BYTES = 63
"""llama.cpp's limit for the name of a tensor."""

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64, _I64, _F64 = 4, 5, 6, 7, 8, 9, 10, 11, 12
_TYPE_OF_DTYPE = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "uint32": _U32,
    "int32": _I32,
    "float32": _F32,
    "bool": _BOOL,
    "uint64": _U64,
    "int64": _I64,
    "float64": _F64,
}


@dataclass(frozen=True)
class TensorEntry:
    """What the header says of a tensor. shape: row-major, as everywhere here."""

    name: str
    shape: tuple[int, ...]
    scheme: Scheme

    @property
    def size_bytes(self) -> int:
        """Bytes of its data, without padding."""
        return self.scheme.num_bytes(self.shape)


def header_bytes(metadata: Mapping[str, Any], entries: Sequence[TensorEntry]) -> bytes:
    """The whole header, padded to where the data begin.

    metadata: str, bool, int, float, NumPy scalars (which choose the type), lists of str, arrays of
    numbers; None is left out. Raises FormatError naming a value or tensor that GGUF cannot hold.
    """
    values = {key: value for key, value in metadata.items() if value is not None}
    values.pop("general.alignment", None)
    parts = [b"GGUF", struct.pack("<IQQ", VERSION, len(entries), len(values))]
    parts += [_string(key) + _value(key, value) for key, value in values.items()]
    for entry, offset in zip(entries, _offsets(entries), strict=True):
        parts.append(_info(entry, offset))
    head = b"".join(parts)
    return head + bytes(-len(head) % ALIGNMENT)


def write_gguf(
    file: BinaryIO,
    metadata: Mapping[str, Any],
    entries: Sequence[TensorEntry],
    data: Iterable[NDArray[np.uint8]],
) -> None:
    """Header and data, tensor by tensor; `data` gives the bytes of each entry in order.

    Raises FormatError where a tensor's bytes are not as many as its entry says.
    """
    file.write(header_bytes(metadata, entries))
    for entry, chunk in zip(entries, data, strict=True):
        if chunk.nbytes != entry.size_bytes:
            raise FormatError(
                f"gguf: tensor '{entry.name}': {chunk.nbytes} bytes, expected {entry.size_bytes}"
            )
        file.write(np.ascontiguousarray(chunk).data)
        file.write(bytes(-entry.size_bytes % ALIGNMENT))


def _offsets(entries: Sequence[TensorEntry]) -> list[int]:
    offsets, at = [], 0
    for entry in entries:
        offsets.append(at)
        at += entry.size_bytes + -entry.size_bytes % ALIGNMENT
    return offsets


def _info(entry: TensorEntry, offset: int) -> bytes:
    raw = entry.name.encode()
    if len(raw) > MAX_NAME_BYTES or not 1 <= len(entry.shape) <= 4:
        raise FormatError(
            f"gguf: tensor '{entry.name[:80]}' of {len(entry.shape)} dimensions: expected a name of"
            f" at most {MAX_NAME_BYTES} bytes and 1 to 4 dimensions"
        )
    dims = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
    return _string(entry.name) + dims + struct.pack("<IQ", entry.scheme.ggml_type, offset)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, list):
        return _strings(key, value)
    array = np.asarray(_typed(value))
    kind = _TYPE_OF_DTYPE.get(array.dtype.name)
    if kind is None or array.ndim > 1:
        raise FormatError(f"gguf: '{key}': a value of type {type(value).__name__} has no GGUF type")
    head = struct.pack("<I", kind)
    if array.ndim == 1:
        head = struct.pack("<IIQ", _ARRAY, kind, len(array))
    return head + array.astype(array.dtype.newbyteorder("<")).tobytes()


def _strings(key: str, values: list[Any]) -> bytes:
    if not all(isinstance(value, str) for value in values):
        raise FormatError(f"gguf: '{key}': expected a list of strings; numbers come as arrays")
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(_string, values))


def _typed(value: Any) -> Any:
    """A plain number as the smallest usual type that holds it; others as they are."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            single = np.float32(value)
        return single if float(single) == value else np.float64(value)
    if value < 0:
        return np.int32(value) if value >= -(2**31) else np.int64(value)
    return np.uint32(value) if value < 2**32 else np.uint64(value)

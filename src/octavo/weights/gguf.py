"""GGUF files: the native reader's header as a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import FormatError, UnsupportedError
from octavo.weights.mapping import map_file
from octavo.weights.scheme import BLOCK_SIZES, SCHEMES_BY_TYPE
from octavo.weights.tensor import Checkpoint, Tensor

if TYPE_CHECKING:
    from octavo._native import GgufHeader, MappedFile

MAX_KEPT = 16_384  # elements of an array, characters of a string


class GgufMetadata(Mapping[str, Any]):
    """Key-values of a GGUF file, decoded when asked for.

    Long arrays are decoded anew each time instead of kept: a vocabulary of 262,144 strings takes
    30 ms and 20 MB, and only the tokenizer wants it, once.
    """

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._index: dict[str, int] = header.keys()
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        value = self._header.value(self._index[key])
        if not hasattr(value, "__len__") or len(value) <= MAX_KEPT:
            self._values[key] = value
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file of version 2 or 3. A file with a vocabulary and no tensors is fine.

    Raises ModelNotFoundError, FormatError (the message names file and field), or UnsupportedError
    for one part of a model split into several files.
    """
    file_map = map_file(path)
    header = _read_header(path, file_map)
    metadata = GgufMetadata(header)
    _refuse_split(path, metadata)
    return Checkpoint(
        path=path,
        format="gguf",
        metadata=metadata,
        tensors=_tensors(header, file_map),
        file_bytes=file_map.array().size,
        maps=(file_map,),
    )


def _read_header(path: Path, file_map: MappedFile) -> GgufHeader:
    from octavo._native import GgufHeader

    try:
        return GgufHeader(file_map, BLOCK_SIZES)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _tensors(header: GgufHeader, file_map: MappedFile) -> dict[str, Tensor]:
    whole = file_map.array()
    return {
        name: Tensor(name, shape, SCHEMES_BY_TYPE[ggml_type], whole[begin : begin + size_bytes])
        for name, shape, ggml_type, begin, size_bytes in header.tensors()
    }


def _refuse_split(path: Path, metadata: GgufMetadata) -> None:
    parts = metadata.get("split.count", 1)
    if parts != 1:
        number = metadata.get("split.no")
        raise UnsupportedError(
            f"{path}: is part {number} (counted from 0) of a model split into {parts} GGUF files,"
            " which is not supported yet; join the parts first (llama-gguf-split --merge)."
        )

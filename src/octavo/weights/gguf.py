"""GGUF files: the native reader's header as a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from octavo.errors import FormatError
from octavo.weights.mapping import map_file
from octavo.weights.scheme import BLOCK_SIZES, SCHEMES_BY_TYPE
from octavo.weights.tensor import Checkpoint, Tensor

if TYPE_CHECKING:
    from octavo._native import GgufHeader, MappedFile, Texts

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

    def texts(self, key: str) -> Texts:
        """An array of strings, copied as it is. Raises KeyError; ValueError if it is something
        else or has what is not UTF-8."""
        return self._header.texts(self._index[key])

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


class GgufFile(Struct, frozen=True):
    """One file: a whole model, or one part of a model that is split."""

    path: Path
    map: MappedFile
    header: GgufHeader
    metadata: GgufMetadata

    def tensors(self) -> dict[str, Tensor]:
        """Views of the file's tensors."""
        whole = self.map.array()
        return {
            name: Tensor(
                name,
                shape,
                SCHEMES_BY_TYPE[ggml_type],
                whole[begin : begin + size_bytes],
                f"{self.path}: tensor '{name}'",
            )
            for name, shape, ggml_type, begin, size_bytes in self.header.tensors()
        }

    def count(self, key: str, default: int) -> int:
        """A count from the metadata. Raises FormatError naming file and key if it is none."""
        value = self.metadata.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise FormatError(f"{self.path}: metadata '{key}': got {value!r:.80}, expected a count")
        return value


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file of version 2 or 3. A file with a vocabulary and no tensors is fine. Any part
    of a model that is split into several files opens them all.

    Raises ModelNotFoundError or FormatError (the message names file and field).
    """
    from octavo.weights.split import open_parts

    files = open_parts(open_file(path))
    tensors: dict[str, Tensor] = {}
    homes: dict[str, Path] = {}
    for file in files:
        for name, tensor in file.tensors().items():
            if name in homes:
                raise FormatError(
                    f"{file.path}: tensor '{name}' is in {homes[name].name} too; expected it once"
                )
            tensors[name], homes[name] = tensor, file.path
    return Checkpoint(
        path=files[0].path,
        format="gguf",
        metadata=files[0].metadata,
        tensors=tensors,
        file_bytes=sum(file.map.array().size for file in files),
        maps=tuple(file.map for file in files),
    )


def open_file(path: Path) -> GgufFile:
    """Map one file and read its header. Raises as `open_gguf` does."""
    from octavo._native import GgufHeader

    file_map = map_file(path)
    try:
        header = GgufHeader(file_map, BLOCK_SIZES)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return GgufFile(path, file_map, header, GgufMetadata(header))

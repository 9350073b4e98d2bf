"""Writing safetensors files: one, or several of bounded size behind an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FormatError
from octavo.weights.folder import INDEX_FILE, SINGLE_FILE
from octavo.weights.safetensors import DTYPE_BYTES
from octavo.weights.whole import NewFolder

SHARD_BYTES = 5_000_000_000
"""At most so many bytes of data a file, unless one tensor has more."""


@dataclass(frozen=True)
class StoredTensor:
    """What the header says of a tensor. dtype: as safetensors names it ("BF16")."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its data."""
        count = DTYPE_BYTES[self.dtype]
        for size in self.shape:
            count *= size
        return count


Produce = Callable[[StoredTensor], NDArray[np.uint8]]


def write_folder(
    folder: NewFolder,
    tensors: Sequence[StoredTensor],
    produce: Produce,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the tensors in order into model.safetensors, or into shards and their index.

    produce gives a tensor's bytes when its turn comes, so that one at a time is in memory. Raises
    FormatError where they are not as many as dtype and shape say; OSError from the disk.
    """
    shards = _shards(tensors, shard_bytes)
    names = _names(len(shards))
    for name, shard in zip(names, shards, strict=True):
        _write_file(folder.open(name), shard, produce)
    if len(shards) > 1:
        homes = {t.name: name for name, shard in zip(names, shards, strict=True) for t in shard}
        index = {"metadata": {"total_size": sum(t.size_bytes for t in tensors)}}
        text = json.dumps({**index, "weight_map": homes}, indent=2)
        folder.write_text(INDEX_FILE, text + "\n")


def _shards(tensors: Sequence[StoredTensor], limit: int) -> list[list[StoredTensor]]:
    shards: list[list[StoredTensor]] = [[]]
    size = 0
    for tensor in tensors:
        if shards[-1] and size + tensor.size_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.size_bytes
    return shards


def _names(count: int) -> list[str]:
    if count == 1:
        return [SINGLE_FILE]
    return [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]


def _write_file(file: BinaryIO, tensors: Sequence[StoredTensor], produce: Produce) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in tensors:
        offsets = [at, at + tensor.size_bytes]
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
        at = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors:
        data = produce(tensor)
        if data.nbytes != tensor.size_bytes:
            raise FormatError(
                f"safetensors: tensor '{tensor.name}': {data.nbytes} bytes,"
                f" expected {tensor.size_bytes}"
            )
        file.write(np.ascontiguousarray(data).data)

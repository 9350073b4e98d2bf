"""What a checkpoint is to the rest of the house: a lazy table of named tensors plus metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from octavo.errors import UnsupportedError
from octavo.weights.scheme import SCHEMES, Scheme, native_names


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view of one tensor in a file. Nothing is copied before a backend packs it.

    shape: row-major, outermost first: a product's weight is (N, K); K is contiguous.
    data: uint8 view into the mapped file, `scheme.num_bytes(shape)` long, read-only.
    home: the file that it is from and its name there, for errors; empty if it is from none.
    """

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    data: NDArray[np.uint8]
    home: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of `data`, known without making it."""
        return self.scheme.num_bytes(self.shape)

    def rows(self, name: str, start: int, stop: int, step: int = 1) -> Tensor:
        """Rows start to stop, as another tensor of this name. A view; with a step, made when asked
        for."""
        shape = (len(range(start, stop, step)), *self.shape[1:])
        if step > 1:
            origin = _RowsOf(self, start, stop, step)
            return DerivedTensor(name, shape, self.scheme, origin, self.home)
        row_bytes = self.num_bytes // self.shape[0]
        part = self.data[start * row_bytes : stop * row_bytes]
        return Tensor(name, shape, self.scheme, part, self.home)

    def reordered(self, order: NDArray[np.intp]) -> Tensor:
        """The same rows in another order, made when asked for."""
        origin = _Reordered(self, order)
        return DerivedTensor(self.name, self.shape, self.scheme, origin, self.home)

    def slices(self) -> list[Tensor]:
        """The tensors along the first dimension, without it. Views."""
        parts = self.data.reshape(self.shape[0], -1)
        return [
            Tensor(f"{self.name}[{i}]", self.shape[1:], self.scheme, part, self.home)
            for i, part in enumerate(parts)
        ]

    def require_native(self) -> None:
        """Raise UnsupportedError naming tensor and type unless backends compute with its scheme."""
        if not self.scheme.native:
            raise UnsupportedError(
                f"weights: tensor '{self.name}' has type {self.scheme.name}, which holds"
                f" activations, not weights; expected one of {', '.join(native_names())}"
            )


class Origin(Protocol):
    """What a derived tensor is made from: numbers that a file stores as no scheme does."""

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        """The views of mapped files that are read."""
        ...

    def values(self) -> NDArray[np.float32]:
        """The numbers, exactly as the file's format defines them; a new array."""
        ...

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        """The numbers stored as `scheme`, flat; a new array."""
        ...


class DerivedTensor(Tensor):
    """A tensor that is made when asked for, from another way of storing its numbers.

    `data` is made anew on each use and belongs to the caller; nothing is kept, so that weights
    exist once in memory. Where `scheme` cannot hold the numbers exactly, `origin.values` can.
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], scheme: Scheme, origin: Origin, home: str = ""
    ) -> None:
        values = {"name": name, "shape": shape, "scheme": scheme, "origin": origin, "home": home}
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)

    origin: Origin

    @property
    def data(self) -> NDArray[np.uint8]:
        """The numbers as `scheme` stores them."""
        return self.origin.blocks(self.scheme)

    def named(self, name: str) -> DerivedTensor:
        """The same under another name."""
        return DerivedTensor(name, self.shape, self.scheme, self.origin, self.home)

    def found_at(self, home: str) -> Self:
        """Itself, with the place that its numbers are from."""
        object.__setattr__(self, "home", home)
        return self

    def rows(self, name: str, start: int, stop: int, step: int = 1) -> Tensor:
        """Rows start to stop; the whole is made for them, and again for others."""
        shape = (len(range(start, stop, step)), *self.shape[1:])
        origin = _RowsOf(self, start, stop, step)
        return DerivedTensor(name, shape, self.scheme, origin, self.home)

    def slices(self) -> list[Tensor]:
        """The whole is made for each."""
        shape = self.shape[1:]
        return [
            DerivedTensor(
                f"{self.name}[{i}]",
                shape,
                self.scheme,
                _RowsOf(self, i, i + 1, 1, shape),
                self.home,
            )
            for i in range(self.shape[0])
        ]


class _RowsOf(Struct, frozen=True):
    """Rows of a tensor, every step-th; in another shape, where one is given."""

    whole: Tensor
    start: int
    stop: int
    step: int = 1
    shape: tuple[int, ...] | None = None

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return _sources(self.whole)

    def values(self) -> NDArray[np.float32]:
        from octavo.weights.expand import dequantize

        rows = dequantize(self.whole)[self.start : self.stop : self.step]
        return rows if self.shape is None else rows.reshape(self.shape)

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        whole = self.whole
        data = whole.origin.blocks(scheme) if isinstance(whole, DerivedTensor) else whole.data
        rows = data.reshape(whole.shape[0], -1)[self.start : self.stop : self.step]
        return np.ascontiguousarray(rows).reshape(-1)


class _Reordered(Struct, frozen=True, eq=False):
    """The rows of a tensor in another order."""

    whole: Tensor
    order: NDArray[np.intp]

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return _sources(self.whole)

    def values(self) -> NDArray[np.float32]:
        from octavo.weights.expand import dequantize

        return dequantize(self.whole)[self.order]

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        return self.whole.data.reshape(len(self.order), -1)[self.order].reshape(-1)


def _sources(tensor: Tensor) -> tuple[NDArray[np.uint8], ...]:
    """The stored bytes that a tensor is, or is made from."""
    return tensor.origin.sources if isinstance(tensor, DerivedTensor) else (tensor.data,)


class GroupedTensor(DerivedTensor):
    """A tensor that a smaller scheme holds with its columns in another order, so that those which
    share a scale lie together.

    by_group: the same numbers, column i being column order[i] of this tensor; order: int32 [K],
    each column once. A backend that reorders what it multiplies by may take that instead.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        scheme: Scheme,
        origin: Origin,
        by_group: DerivedTensor,
        order: NDArray[np.int32],
    ) -> None:
        super().__init__(name, shape, scheme, origin)
        object.__setattr__(self, "by_group", by_group)
        object.__setattr__(self, "order", order)

    by_group: DerivedTensor
    order: NDArray[np.int32]

    def named(self, name: str) -> GroupedTensor:
        """The same under another name."""
        by_group = self.by_group.named(name)
        named = GroupedTensor(name, self.shape, self.scheme, self.origin, by_group, self.order)
        return named.found_at(self.home)

    def rows(self, name: str, start: int, stop: int, step: int = 1) -> Tensor:
        """Rows start to stop, with their columns in the same order: parts of joined weights."""
        part, by_group = super().rows(name, start, stop, step), self.by_group
        return self._of(part, by_group.rows(name, start, stop, step))

    def reordered(self, order: NDArray[np.intp]) -> Tensor:
        """The same rows in another order, made when asked for."""
        return self._of(super().reordered(order), self.by_group.reordered(order))

    def _of(self, part: Tensor, by_group: Tensor) -> Tensor:
        if not isinstance(part, DerivedTensor) or not isinstance(by_group, DerivedTensor):
            return part
        made = GroupedTensor(part.name, part.shape, part.scheme, part.origin, by_group, self.order)
        return made.found_at(self.home)


def alike(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Where some have their columns in another order, the others have theirs so too, as they lie:
    an expert's groups may happen not to be spread."""
    first = next((t for t in tensors.values() if isinstance(t, GroupedTensor)), None)
    if first is None:
        return dict(tensors)
    return {name: _grouped_like(first, tensor) for name, tensor in tensors.items()}


def _grouped_like(first: GroupedTensor, tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DerivedTensor) or tensor.scheme != first.by_group.scheme:
        return tensor
    order = np.arange(tensor.shape[-1], dtype=np.int32)
    grouped = GroupedTensor(tensor.name, tensor.shape, first.scheme, tensor.origin, tensor, order)
    return grouped.found_at(tensor.home)


class StackedTensor(DerivedTensor):
    """Tensors of one shape and scheme as one with another dimension in front, such as the experts
    of a layer that a file keeps apart. Taking it apart again copies nothing."""

    def __init__(self, name: str, parts: Sequence[Tensor]) -> None:
        shape = (len(parts), *parts[0].shape)
        super().__init__(name, shape, parts[0].scheme, _Stack(tuple(parts)), parts[0].home)
        object.__setattr__(self, "parts", list(parts))

    parts: list[Tensor]

    def slices(self) -> list[Tensor]:
        """The parts."""
        return self.parts


class _Stack(Struct, frozen=True):
    """Tensors one after the other."""

    parts: tuple[Tensor, ...]

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        return tuple(source for part in self.parts for source in _sources(part))

    def values(self) -> NDArray[np.float32]:
        from octavo.weights.expand import dequantize

        return np.stack([dequantize(part) for part in self.parts])

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        return np.concatenate([part.data.reshape(-1) for part in self.parts])


def float32_tensor(name: str, array: NDArray[np.float32], home: str = "") -> Tensor:
    """An F32 tensor of an array's numbers."""
    data = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8)
    return Tensor(name, array.shape, SCHEMES["F32"], data, home)


class FileMap(Protocol):
    """A mapped file, as octavo._native.MappedFile gives it."""

    def array(self) -> NDArray[np.uint8]: ...

    def release(self, offset: int, length: int) -> None: ...


def _address(array: NDArray[np.uint8]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Checkpoint(Struct):
    """A model on disk. `tensors` is keyed by canonical names, which are GGUF's names
    ("token_embd.weight", "blk.0.attn_q.weight"); a Hugging Face folder is mapped to them.

    format: "gguf" or "safetensors".
    metadata: GGUF key-values as plain Python values (arrays of numbers as NumPy arrays, of strings
        as lists), decoded when first asked for; or the parsed config.json of a Hugging Face folder.
        In lists of strings, bytes that are not UTF-8 become lone surrogates:
        `.encode("utf-8", "surrogateescape")` gives them back.
    maps: the mapped files that tensors view; a checkpoint made in memory has none.
    notes: lines that whoever loads it should see, such as what a storage format costs here.
    """

    path: Path
    format: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    file_bytes: int
    extras: dict[str, Any] = field(default_factory=dict)
    maps: tuple[FileMap, ...] = ()
    notes: tuple[str, ...] = ()

    def release(self, tensor: Tensor) -> None:
        """Tell the OS that a tensor's mapped pages may go (MADV_DONTNEED); data stays readable.

        Called by a backend after packing a tensor, so that weights exist once in memory. Does
        nothing for a tensor that lies in none of `maps`.
        """
        for data in _sources(tensor):
            found = self._find(data)
            if found is not None:
                file_map, offset = found
                file_map.release(offset, data.nbytes)

    def is_mapped(self, tensor: Tensor) -> bool:
        """Whether a tensor's data are pages of a mapped file, which may be dropped after use."""
        return not isinstance(tensor, DerivedTensor) and self._find(tensor.data) is not None

    def _find(self, data: NDArray[np.uint8]) -> tuple[FileMap, int] | None:
        """The map that bytes lie in, and where."""
        address, length = _address(data), data.nbytes
        for file_map in self.maps:
            whole = file_map.array()
            offset = address - _address(whole)
            if offset >= 0 and offset + length <= whole.nbytes:
                return file_map, offset
        return None

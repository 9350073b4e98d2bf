"""Stored operands in float32: expanded when asked for, kept as far as a budget goes."""

from __future__ import annotations

from octavo.backends.base import Floats, Ints
from octavo.errors import BackendError
from octavo.graph import Graph, Value
from octavo.weights import Checkpoint, Tensor, dequantize
from octavo.weights.tensor import DerivedTensor

KEPT_BYTES = 3 << 30
"""With weights="native", expanded tensors beyond this are expanded again on each use."""


class WeightTable:
    """A graph's weights and constants by value. weights="float" keeps everything expanded."""

    def __init__(self, graph: Graph, checkpoint: Checkpoint, weights: str) -> None:
        if weights not in ("native", "float"):
            raise BackendError(f"reference: weights '{weights}': expected 'native' or 'float'")
        self._tensors = {v.name: _find(checkpoint, v) for v in graph.weights}
        self._constants = graph.constants
        self._kept: dict[str, Floats] = {}
        self._room = KEPT_BYTES if weights == "native" else None

    @property
    def kept_bytes(self) -> int:
        """Bytes that will be kept once every tensor has been used."""
        total = sum(4 * tensor.size for tensor in self._tensors.values())
        return total if self._room is None else min(total, self._room)

    def array(self, value: Value) -> Floats:
        """The whole operand in float32."""
        if value.kind == "constant":
            return self._constants[value.name]
        kept = self._kept.get(value.name)
        return self._expand(value.name) if kept is None else kept

    def rows(self, value: Value, ids: Ints) -> Floats:
        """Some rows [len(ids), D] of a table; only they are expanded."""
        if value.kind == "constant" or value.name in self._kept:
            return self.array(value)[ids]
        tensor = self._tensors[value.name]
        if isinstance(tensor, DerivedTensor):
            return self._expand(value.name)[ids]
        packed = tensor.data.reshape(tensor.shape[0], -1)[ids]
        shape = (len(ids), tensor.shape[1])
        return dequantize(Tensor(tensor.name, shape, tensor.scheme, packed.reshape(-1)))

    def clear(self) -> None:
        """Free what is kept."""
        self._kept.clear()

    def _expand(self, name: str) -> Floats:
        array = dequantize(self._tensors[name])
        if self._room is None:
            self._kept[name] = array
        elif array.nbytes <= self._room:
            self._room -= array.nbytes
            self._kept[name] = array
        return array


def _find(checkpoint: Checkpoint, value: Value) -> Tensor:
    tensor = checkpoint.tensors.get(value.name)
    if tensor is None:
        raise BackendError(f"reference: tensor '{value.name}' is not in {checkpoint.path}")
    if tensor.shape != value.shape:
        got, wanted = list(tensor.shape), list(value.shape)
        raise BackendError(f"reference: tensor '{value.name}': got {got}, expected {wanted}")
    tensor.require_native()
    return tensor

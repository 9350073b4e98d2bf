"""Experts' weights as they are packed: in another order of columns, where a smaller scheme holds
them so (GPTQ in the order of activations)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import Op
from octavo.weights.tensor import GroupedTensor, Tensor

_Orders = NDArray[np.int32]


class ExpertWeights:
    """The weights of a graph's mixtures.

    matrices: of each weight, a matrix an expert. read: [E, D], the elements of the input that are
    columns of gate and up, by these weights. made: [E, F], of the hidden elements those that gate
    and up make and down reads, by the biases of gate and up. What is not here is as the file has
    it.
    """

    def __init__(self, graph: Graph, stored: Callable[[Value], Tensor], *, as_float: bool) -> None:
        self.matrices: dict[Value, list[Tensor]] = {}
        self.read: dict[Value, _Orders] = {}
        self.made: dict[Value, _Orders] = {}
        self._order_bytes = 0
        for node in graph.nodes:
            if node.op is Op.EXPERTS:
                self._add(node, stored, as_float)

    def _add(self, node: Node, stored: Callable[[Value], Tensor], as_float: bool) -> None:
        """Gate and up read one input: where they differ in their order they stay as they are. Down
        reads what they make: their rows take the order of its columns."""
        gate, up, down = (value for value in node.inputs[2:5] if value is not None)
        gates, ups, downs = (stored(value).slices() for value in (gate, up, down))
        read, made = (None, None) if as_float else (_orders(gates), _orders(downs))
        also = _orders(ups)
        if read is not None and also is not None and np.array_equal(read, also):
            gates, ups = _by_group(gates), _by_group(ups)
            self.read |= {gate: read, up: read}
            self._order_bytes += read.nbytes
        if made is not None:
            downs = _by_group(downs)
            gates, ups = _with_rows(gates, made), _with_rows(ups, made)
            self.made |= {bias: made for bias in node.inputs[5:7] if bias is not None}
        self.matrices |= {gate: gates, up: ups, down: downs}

    @property
    def order_bytes(self) -> int:
        """What the program keeps of orders."""
        return self._order_bytes

    def notes(self) -> tuple[str, ...]:
        """A line if weights are expanded that a smaller scheme would hold in another order."""
        spread = [t for own in self.matrices.values() for t in own if isinstance(t, GroupedTensor)]
        if not spread:
            return ()
        why = "gate and up of an expert differ in the order of their columns"
        return (f"{len(spread)} matrices of experts are kept as {spread[0].scheme.name}: {why}",)


def _orders(tensors: Sequence[Tensor]) -> _Orders | None:
    """Of all, or None if some lie as they are, or would be held in another way."""
    found = [t for t in tensors if isinstance(t, GroupedTensor)]
    alike = len(found) == len(tensors) and len({t.by_group.scheme for t in found}) == 1
    return np.stack([t.order for t in found]) if alike else None


def _by_group(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [t.by_group if isinstance(t, GroupedTensor) else t for t in tensors]


def _with_rows(tensors: Sequence[Tensor], orders: _Orders) -> list[Tensor]:
    rows = orders.astype(np.intp)
    return [t.reordered(order) for t, order in zip(tensors, rows, strict=True)]

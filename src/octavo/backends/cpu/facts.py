"""What lowering knows about a graph and what it has made so far; shared by its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from octavo.backends.cpu.regions import QuantizeRegion, Region, RowKind, Slot
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import Op

Orders = Mapping[Value, NDArray[np.int32]]
"""Weights whose columns lie in another order than their input's elements: by weight. Of experts, an
order each."""

_WEIGHT = {Op.LINEAR: 1, Op.EXPERTS: 2}
"""Operators that multiply their first operand by a matrix, and which operand that is."""


class Facts:
    """Readers and makers of values, slots already written, and the regions so far."""

    def __init__(self, graph: Graph, is_quantized: Callable[[Value], bool], orders: Orders) -> None:
        self.graph = graph
        self.is_quantized = is_quantized
        self.orders = orders
        self.reordered: dict[tuple[Value, bytes], Value] = {}
        self.regions: list[Region] = []
        self.done: set[Node] = set()
        self.readers: dict[Value, list[Node]] = {}
        self.maker: dict[Value, Node] = {}
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.in_place_of: dict[Value, Value] = {}  # a chain's result -> the projection's output
        self.ready: set[Slot] = set()
        self.angles: dict[tuple[Value, float], Slot] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(node)
            if node.output is not None:
                self.maker[node.output] = node

    def sole_reader(self, value: Value | None) -> Node | None:
        """The one node that reads a value, if there is one and the value is not the output."""
        nodes = self.readers.get(value, []) if value is not None else []
        return nodes[0] if len(nodes) == 1 and value is not self.graph.output else None

    def rows(self, value: Value) -> RowKind:
        return "logits" if value.shape[0] == "R" else "tokens"

    def f32(self, value: Value | None) -> Slot:
        assert value is not None
        while value in self.in_place_of:
            value = self.in_place_of[value]
        return Slot(value, "f32")

    def wants(self, value: Value) -> tuple[bool, bool]:
        """(some reader wants float rows, some reader wants int8 rows)."""
        readers = self.readers.get(value, [])
        quantized = [n for n in readers if value is n.inputs[0] and self._form(n) == (True, b"")]
        return len(quantized) < len(readers) or value is self.graph.output, bool(quantized)

    def _reads_int8(self, node: Node) -> bool:
        """Whether a node is a product that reads its first operand as int8 rows. Experts that each
        have an order of their own make such rows of float ones."""
        place = _WEIGHT.get(node.op)
        weight = node.inputs[place] if place is not None else None
        spread = node.op is Op.EXPERTS and weight in self.orders
        return weight is not None and self.is_quantized(weight) and not spread

    def _form(self, node: Node) -> tuple[bool, bytes]:
        """How a product reads its input: as int8 rows or not, and in which order."""
        weight = node.inputs[1] if node.op is Op.LINEAR else None
        order = self.orders.get(weight) if weight is not None else None
        return self._reads_int8(node), b"" if order is None else order.tobytes()

    def outs_of(self, value: Value, fuse_quantize: bool = True) -> list[Slot]:
        """The forms that a region making `value` should write."""
        as_float, as_int8 = self.wants(value)
        outs = [Slot(value, "f32")] if as_float or not (as_int8 and fuse_quantize) else []
        if as_int8 and fuse_quantize:
            outs.append(Slot(value, "q8"))
        return outs

    def push(self, region: Region) -> None:
        self.regions.append(region)
        self.ready.update(region.writes())

    def operand(self, product: Node) -> Slot:
        """A product's input in the form it reads, quantized now if nobody has done so."""
        source = self.f32(product.inputs[0])
        if not self._reads_int8(product):
            return source
        weight, key = product.inputs[1], (source.value, self._form(product)[1])
        order = self.orders.get(weight) if key[1] and weight is not None else None
        value = source.value
        if order is not None and key not in self.reordered:
            name = f"{value.name}.order{len(self.reordered)}"
            self.reordered[key] = Value(name, value.shape, "result")
        slot = Slot(self.reordered.get(key, value), "q8")
        if slot not in self.ready:
            self.push(QuantizeRegion(self.rows(value), source, slot, order))
        return slot

    def _is_computed(self, value: Value | None, before: Node) -> bool:
        """Whether a value is there when this node runs."""
        if value is None or self.f32(value) not in self.ready:
            return False
        return self.order[self.maker[value]] < self.order[before]

    def _rows_of(self, node: Node) -> RowKind:
        assert node.output is not None
        return self.rows(node.output)

    def _out(self, node: Node) -> Slot:
        assert node.output is not None
        return Slot(node.output, "f32")

    def _exclusive(self, value: Value | None) -> bool:
        """The value may be overwritten by its only reader."""
        return (
            value is not None
            and value.kind == "result"
            and self.sole_reader(value) is not None
            and value not in self.in_place_of
        )

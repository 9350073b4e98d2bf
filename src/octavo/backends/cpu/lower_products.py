"""Lowering of matrix products: siblings of one input, residuals, gated pairs."""

from __future__ import annotations

from octavo.backends.cpu.facts import Facts
from octavo.backends.cpu.regions import GatedRegion, GateKind, LinearRegion, Product, Slot
from octavo.graph.graph import Node, Value
from octavo.graph.ops import Op

_GROUP = 32  # activations that share a scale; a fused quantize needs whole groups


_GATES: dict[Op, GateKind] = {Op.SILU: "silu", Op.GELU: "gelu", Op.GELU_ERF: "gelu_erf"}


class ProductLowering(Facts):
    """Everything that starts at a LINEAR node."""

    def _linear(self, node: Node) -> None:
        if self._gated(node):
            return
        region = LinearRegion(self._rows_of(node), self.operand(node))
        for sibling in self._siblings(node):
            region.products.append(self._product(sibling))
            self.done.add(sibling)
        self.push(region)

    def _siblings(self, node: Node) -> list[Node]:
        """This product and later ones of the same input and form that fuse with nothing else."""
        found = [node]
        for other in self.readers[node.inputs[0]] if node.inputs[0] else []:
            later = self.order[other] > self.order[node] and other not in self.done
            if not later or other.op is not Op.LINEAR or other.inputs[0] is not node.inputs[0]:
                continue
            same_form = self._form(other) == self._form(node)
            if same_form and self._gate_of(other) is None:
                found.append(other)
        return found

    def _product(self, node: Node) -> Product:
        weight, bias, out = node.inputs[1], node.inputs[2], node.output
        assert weight is not None
        assert out is not None
        if out is self.graph.output or self._is_capped_output(out):
            return Product(weight, bias, None)
        add = self.sole_reader(out)
        if add is not None and add.op is Op.ADD:
            other = add.inputs[0] if add.inputs[1] is out else add.inputs[1]
            if other is not out and self._is_computed(other, node):
                self.done.add(add)
                assert add.output is not None
                target = Slot(add.output, "f32")
                return Product(weight, bias, target, self.f32(other))
        return Product(weight, bias, Slot(out, "f32"))

    def _is_capped_output(self, value: Value) -> bool:
        reader = self.sole_reader(value)
        return reader is not None and reader.op is Op.SOFTCAP and reader.output is self.graph.output

    def _gate_of(self, node: Node) -> tuple[Node, Node, Node] | None:
        """(gate product, activation, multiply) if `node` is the gate or up half of a gated MLP."""
        reader = self.sole_reader(node.output)
        if reader is not None and reader.op in _GATES:
            multiply = self.sole_reader(reader.output)
            if multiply is None or multiply.op is not Op.MUL:
                return None
            other = multiply.inputs[1 if multiply.inputs[0] is reader.output else 0]
            up = self.maker.get(other) if other is not None else None
            return (node, reader, multiply) if up and self._pairs(node, up) else None
        if reader is not None and reader.op is Op.MUL:
            other = reader.inputs[1 if reader.inputs[0] is node.output else 0]
            active = self.maker.get(other) if other is not None else None
            if active is None or active.op not in _GATES:
                return None
            gate = self.maker.get(active.inputs[0]) if active.inputs[0] is not None else None
            if gate is not None and self._pairs(gate, node) and self._gate_of(gate):
                return (gate, active, reader)
        return None

    def _pairs(self, gate: Node, up: Node) -> bool:
        return (
            gate.op is Op.LINEAR
            and up.op is Op.LINEAR
            and gate is not up
            and gate.inputs[0] is up.inputs[0]
            and gate.output is not None
            and up.output is not None
            and gate.output.shape == up.output.shape
            and self._form(gate) == self._form(up)
            and self.sole_reader(up.output) is not None
        )

    def _gated(self, node: Node) -> bool:
        found = self._gate_of(node)
        if found is None:
            return False
        gate, active, multiply = found
        other = multiply.inputs[1 if multiply.inputs[0] is active.output else 0]
        assert other is not None
        assert multiply.output is not None
        up = self.maker[other]
        whole_groups = int(multiply.output.shape[1]) % _GROUP == 0
        gate_weight, up_weight = gate.inputs[1], up.inputs[1]
        assert gate_weight is not None
        assert up_weight is not None
        self.push(
            GatedRegion(
                self._rows_of(multiply),
                self.operand(gate),
                gate_weight,
                up_weight,
                gate.inputs[2],
                up.inputs[2],
                _GATES[active.op],
                self.outs_of(multiply.output, whole_groups),
            )
        )
        self.done.update((gate, up, active, multiply))
        return True

"""Lowering of mixtures of experts: choosing, the experts with their residual, gated rows."""

from __future__ import annotations

from octavo.backends.cpu.facts import Facts
from octavo.backends.cpu.regions import ExpertsRegion, GateRowsRegion, RouteRegion, Slot
from octavo.errors import BackendError
from octavo.graph.graph import Node
from octavo.graph.ops import ExpertsAttrs, Op, RouteAttrs


class ExpertLowering(Facts):
    """Everything that belongs to a mixture but its router's product."""

    def _route(self, node: Node) -> None:
        assert isinstance(node.attrs, RouteAttrs)
        source, bias = self.f32(node.inputs[0]), node.inputs[1]
        self.push(RouteRegion(self._rows_of(node), source, bias, node.attrs, self._out(node)))

    def _experts(self, node: Node) -> None:
        assert isinstance(node.attrs, ExpertsAttrs)
        gate, up, down = node.inputs[2:5]
        assert gate is not None
        assert up is not None
        assert down is not None
        if self.is_quantized(gate) != self.is_quantized(up):
            raise BackendError(
                f"cpu: '{gate.name}' and '{up.name}': got one quantized and one float weight, "
                "expected both alike"
            )
        out, residual = self._with_residual(node)
        self.push(
            ExpertsRegion(
                self._rows_of(node),
                self.operand(node),
                self.f32(node.inputs[1]),
                (gate, up, down),
                (node.inputs[5], node.inputs[6], node.inputs[7]),
                node.attrs,
                self.is_quantized(gate),
                self.is_quantized(down),
                self.orders.get(gate),
                out,
                residual,
            )
        )

    def _with_residual(self, node: Node) -> tuple[Slot, Slot | None]:
        """Where the result goes; with the other operand of the addition that alone reads it."""
        add = self.sole_reader(node.output)
        if add is None or add.op is not Op.ADD:
            return self._out(node), None
        other = add.inputs[0] if add.inputs[1] is node.output else add.inputs[1]
        if other is node.output or not self._is_computed(other, node):
            return self._out(node), None
        self.done.add(add)
        return self._out(add), self.f32(other)

    def _gate_rows(self, node: Node) -> None:
        source, gate = self.f32(node.inputs[0]), self.f32(node.inputs[1])
        self.push(GateRowsRegion(self._rows_of(node), source, gate, self._out(node)))

"""Graph -> regions: finds what can be fused and drops the rest into single-operator regions.

Fused here: norm + quantize; products of one input; product + bias + residual; gate, activation and
up + quantize; experts + residual; head norm + rotation + cache write; attention + quantize;
embedding + scale. A pattern is taken only where the values between its nodes have no other reader.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.backends.cpu.facts import Orders
from octavo.backends.cpu.lower_experts import ExpertLowering
from octavo.backends.cpu.lower_heads import HeadLowering
from octavo.backends.cpu.lower_latent import LatentLowering
from octavo.backends.cpu.lower_products import ProductLowering
from octavo.backends.cpu.regions import (
    ElementwiseKind,
    ElementwiseRegion,
    EmbedRegion,
    LinearRegion,
    MeanRegion,
    NormRegion,
    OutputRegion,
    Region,
    SelectRegion,
    Slot,
)
from octavo.errors import BackendError
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import (
    EmbedPositionsAttrs,
    LayerNormAttrs,
    Op,
    RmsNormAttrs,
    ScaleAttrs,
    SoftcapAttrs,
)

_ELEMENTWISE: dict[Op, ElementwiseKind] = {
    Op.ADD: "add",
    Op.MUL: "mul",
    Op.SCALE: "scale",
    Op.SILU: "silu",
    Op.GELU: "gelu",
    Op.GELU_ERF: "gelu_erf",
    Op.RELU: "relu",
    Op.TANH: "tanh",
    Op.SOFTCAP: "softcap",
}


def lower(
    graph: Graph, is_quantized: Callable[[Value], bool], orders: Orders | None = None
) -> list[Region]:
    """Cut the graph into regions. is_quantized tells whether a weight's products read int8 rows,
    orders in which order, where it is not that of their input.

    Raises BackendError naming a node that no region covers.
    """
    return _Lowering(graph, is_quantized, orders or {}).run()


class _Lowering(ProductLowering, HeadLowering, LatentLowering, ExpertLowering):
    def run(self) -> list[Region]:
        self._add_angles()
        for node in self.graph.nodes:
            if node not in self.done:
                self._lower(node)
                self.done.add(node)
        if not self._writes_logits(self.regions[-1]):
            output = self.graph.output
            self.push(OutputRegion(self.rows(output), self.f32(output)))
        return self.regions

    def _lower(self, node: Node) -> None:
        match node.op:
            case Op.EMBED:
                self._embed(node)
            case Op.EMBED_POSITIONS:
                self._embed_positions(node)
            case Op.EMBED_TYPES:
                self._embed_types(node)
            case Op.RMS_NORM:
                self._norm(node)
            case Op.LAYER_NORM:
                self._layer_norm(node)
            case Op.LINEAR:
                self._linear(node)
            case Op.ROPE:
                self._rope(node)
            case Op.KV_WRITE:
                self._kv_write(node)
            case Op.ATTENTION:
                self._attention(node)
            case Op.HEAD_LINEAR:
                self._head_linear(node)
            case Op.LATENT_WRITE:
                self._latent_write(node)
            case Op.LATENT_ATTENTION:
                self._latent_attention(node)
            case Op.ROUTE:
                self._route(node)
            case Op.EXPERTS:
                self._experts(node)
            case Op.GATE_ROWS:
                self._gate_rows(node)
            case Op.SELECT_ROWS:
                self.push(SelectRegion(self.f32(node.inputs[0]), self._out(node)))
            case Op.MEAN_ROWS:
                self.push(MeanRegion(self.f32(node.inputs[0]), self._out(node)))
            case op if op in _ELEMENTWISE:
                self._elementwise(node)
            case _:
                raise BackendError(f"cpu: operator '{node.op.value}' has no native region")

    def _writes_logits(self, region: Region) -> bool:
        if isinstance(region, LinearRegion):
            return region.products[-1].out is None
        return isinstance(region, ElementwiseRegion) and region.out is None

    def _embed(self, node: Node) -> None:
        table, out, scale = node.inputs[1], node.output, 1.0
        assert table is not None
        reader = self.sole_reader(out)
        if reader is not None and isinstance(reader.attrs, ScaleAttrs):
            out, scale = reader.output, reader.attrs.factor
            self.done.add(reader)
        assert out is not None
        self.push(EmbedRegion(table, Slot(out, "f32"), scale))

    def _embed_positions(self, node: Node) -> None:
        table = node.inputs[1]
        assert table is not None
        assert isinstance(node.attrs, EmbedPositionsAttrs)
        self.push(EmbedRegion(table, self._out(node), 1.0, "positions", node.attrs.offset))

    def _embed_types(self, node: Node) -> None:
        table = node.inputs[1]
        assert table is not None
        self.push(EmbedRegion(table, self._out(node), 1.0, "types"))

    def _layer_norm(self, node: Node) -> None:
        assert isinstance(node.attrs, LayerNormAttrs)
        assert node.output is not None
        weight, bias = node.inputs[1:]
        assert weight is not None
        source, outs = self.f32(node.inputs[0]), self.outs_of(node.output)
        rows, eps = self.rows(node.output), node.attrs.eps
        self.push(NormRegion(rows, source, weight, eps, 0.0, outs, True, bias))

    def _norm(self, node: Node) -> None:
        reader = self.sole_reader(node.output)
        if reader is not None and reader.op is Op.ROPE and self._is_head_norm(node, reader):
            return  # taken up by the rotation
        assert isinstance(node.attrs, RmsNormAttrs)
        assert node.output is not None
        weight = node.inputs[1]
        assert weight is not None
        self.push(
            NormRegion(
                self.rows(node.output),
                self.f32(node.inputs[0]),
                weight,
                node.attrs.eps,
                node.attrs.unit_offset,
                self.outs_of(node.output),
            )
        )

    def _elementwise(self, node: Node) -> None:
        assert node.output is not None
        number = 0.0
        if isinstance(node.attrs, ScaleAttrs):
            number = node.attrs.factor
        if isinstance(node.attrs, SoftcapAttrs):
            number = node.attrs.cap
        kind = _ELEMENTWISE[node.op]
        rows = self.rows(node.output)
        source = node.inputs[0]
        capped = source is not None and self._is_capped_output(source)
        if capped and self._writes_logits(self.regions[-1]):
            return self.push(ElementwiseRegion(rows, kind, None, None, None, number))
        b = self.f32(node.inputs[1]) if len(node.inputs) > 1 else None
        self.push(ElementwiseRegion(rows, kind, self.f32(source), b, self._out(node), number))

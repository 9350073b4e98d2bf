"""Graph -> regions: finds what can be fused and drops the rest into single-operator regions.

Fused here: norm + quantize; products of one input; product + bias + residual; gate, activation and
up + quantize; head norm + rotation + cache write; attention + quantize; embedding + scale. A
pattern is taken only where the values between its nodes have no other reader.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.backends.cpu.regions import (
    AnglesRegion,
    AttentionRegion,
    ElementwiseKind,
    ElementwiseRegion,
    EmbedRegion,
    GatedRegion,
    HeadChain,
    HeadsRegion,
    LinearRegion,
    NormRegion,
    OutputRegion,
    Product,
    QuantizeRegion,
    Region,
    RowKind,
    SelectRegion,
    Slot,
)
from octavo.errors import BackendError
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import (
    AttentionAttrs,
    KvWriteAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    ScaleAttrs,
    SoftcapAttrs,
)

_GROUP = 32  # activations that share a scale; a fused quantize needs whole groups


_ELEMENTWISE: dict[Op, ElementwiseKind] = {
    Op.ADD: "add",
    Op.MUL: "mul",
    Op.SCALE: "scale",
    Op.SILU: "silu",
    Op.GELU: "gelu",
    Op.SOFTCAP: "softcap",
}


def lower(graph: Graph, is_quantized: Callable[[Value], bool]) -> list[Region]:
    """Cut the graph into regions. is_quantized tells whether a weight's products read int8 rows.

    Raises BackendError naming a node that no region covers.
    """
    return _Lowering(graph, is_quantized).run()


class _Lowering:
    def __init__(self, graph: Graph, is_quantized: Callable[[Value], bool]) -> None:
        self.graph = graph
        self.is_quantized = is_quantized
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

    # Small questions

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
        quantized = [n for n in readers if n.op is Op.LINEAR and self._reads_int8(n)]
        return len(quantized) < len(readers) or value is self.graph.output, bool(quantized)

    def _reads_int8(self, linear: Node) -> bool:
        weight = linear.inputs[1]
        return weight is not None and self.is_quantized(weight)

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

    def operand(self, linear: Node) -> Slot:
        """A product's input in the form it reads, quantized now if nobody has done so."""
        source = self.f32(linear.inputs[0])
        if not self._reads_int8(linear):
            return source
        slot = Slot(source.value, "q8")
        if slot not in self.ready:
            self.push(QuantizeRegion(self.rows(source.value), source, slot))
        return slot

    # One node and what fuses with it

    def _lower(self, node: Node) -> None:
        match node.op:
            case Op.EMBED:
                self._embed(node)
            case Op.RMS_NORM:
                self._norm(node)
            case Op.LINEAR:
                self._linear(node)
            case Op.ROPE:
                self._rope(node)
            case Op.KV_WRITE:
                self._kv_write(node)
            case Op.ATTENTION:
                self._attention(node)
            case Op.SELECT_ROWS:
                self.push(SelectRegion(self.f32(node.inputs[0]), self._out(node)))
            case op if op in _ELEMENTWISE:
                self._elementwise(node)
            case _:
                raise BackendError(f"cpu: operator '{node.op.value}' has no native region")

    def _out(self, node: Node) -> Slot:
        assert node.output is not None
        return Slot(node.output, "f32")

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

    def _is_head_norm(self, norm: Node, rope: Node) -> bool:
        weight = norm.inputs[1]
        assert weight is not None
        assert isinstance(rope.attrs, RopeAttrs)
        return weight.shape == (rope.attrs.head_dim,) and self._exclusive(norm.inputs[0])

    def _exclusive(self, value: Value | None) -> bool:
        """The value may be overwritten by its only reader."""
        return (
            value is not None
            and value.kind == "result"
            and self.sole_reader(value) is not None
            and value not in self.in_place_of
        )

    # Products

    def _linear(self, node: Node) -> None:
        if self._gated(node):
            return
        region = LinearRegion(self._rows_of(node), self.operand(node))
        for sibling in self._siblings(node):
            region.products.append(self._product(sibling))
            self.done.add(sibling)
        self.push(region)

    def _rows_of(self, node: Node) -> RowKind:
        assert node.output is not None
        return self.rows(node.output)

    def _siblings(self, node: Node) -> list[Node]:
        """This product and later ones of the same input and form that fuse with nothing else."""
        found = [node]
        for other in self.readers[node.inputs[0]] if node.inputs[0] else []:
            later = self.order[other] > self.order[node] and other not in self.done
            if not later or other.op is not Op.LINEAR or other.inputs[0] is not node.inputs[0]:
                continue
            same_form = self._reads_int8(other) == self._reads_int8(node)
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

    def _is_computed(self, value: Value | None, before: Node) -> bool:
        if value is None or self.f32(value) not in self.ready:
            return False
        return self.order[self.maker[value]] < self.order[before]

    def _is_capped_output(self, value: Value) -> bool:
        reader = self.sole_reader(value)
        return reader is not None and reader.op is Op.SOFTCAP and reader.output is self.graph.output

    def _gate_of(self, node: Node) -> tuple[Node, Node, Node] | None:
        """(gate product, activation, multiply) if `node` is the gate or up half of a gated MLP."""
        reader = self.sole_reader(node.output)
        if reader is not None and reader.op in (Op.SILU, Op.GELU):
            multiply = self.sole_reader(reader.output)
            if multiply is None or multiply.op is not Op.MUL:
                return None
            other = multiply.inputs[1 if multiply.inputs[0] is reader.output else 0]
            up = self.maker.get(other) if other is not None else None
            return (node, reader, multiply) if up and self._pairs(node, up) else None
        if reader is not None and reader.op is Op.MUL:
            other = reader.inputs[1 if reader.inputs[0] is node.output else 0]
            active = self.maker.get(other) if other is not None else None
            if active is None or active.op not in (Op.SILU, Op.GELU):
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
            and self._reads_int8(gate) == self._reads_int8(up)
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
                "silu" if active.op is Op.SILU else "gelu",
                self.outs_of(multiply.output, whole_groups),
            )
        )
        self.done.update((gate, up, active, multiply))
        return True

    # Heads and attention

    def _add_angles(self) -> None:
        for node in self.graph.nodes:
            if isinstance(node.attrs, RopeAttrs):
                freq = node.inputs[1]
                assert freq is not None
                key = (freq, node.attrs.magnitude)
                if key not in self.angles:
                    name = f"angles.{len(self.angles)}"
                    value = Value(name, ("T", 2 * int(freq.shape[0])), "result")
                    self.angles[key] = Slot(value, "f32")
                    self.push(AnglesRegion(freq, node.attrs.magnitude, self.angles[key]))

    def _rope(self, node: Node) -> None:
        """Left to the cache write or the attention that reads it, if it has just that reader."""
        reader = self.sole_reader(node.output)
        waits = reader is not None and reader.op in (Op.KV_WRITE, Op.ATTENTION)
        if waits and reader is not None and reader.inputs[0] is node.output and self._owned(node):
            return
        self._emit_heads(q=self._chain(node), k=None, rope=node, write=None)

    def _owned(self, rope: Node) -> bool:
        return self._exclusive(self._base(rope))

    def _base(self, rope: Node) -> Value | None:
        """The value a chain starts from: the projection's output."""
        value = rope.inputs[0]
        maker = self.maker.get(value) if value is not None else None
        folded = (
            maker is not None
            and maker.op is Op.RMS_NORM
            and self.sole_reader(value) is rope
            and self._is_head_norm(maker, rope)
        )
        return maker.inputs[0] if folded and maker is not None else value

    def _chain(self, rope: Node) -> HeadChain:
        """Claims a rotation (and the head norm before it) to be done in place."""
        base = self._base(rope)
        assert base is not None
        assert rope.output is not None
        assert isinstance(rope.attrs, RopeAttrs)
        norm = None
        if base is not rope.inputs[0] and rope.inputs[0] is not None:
            norm = self.maker[rope.inputs[0]].inputs[1]
        if not self._exclusive(base):
            base = self._copy(base, rope.output)
        self.in_place_of[rope.output] = base
        heads = int(rope.output.shape[1]) // rope.attrs.head_dim
        return HeadChain(self.f32(base), heads, norm)

    def _copy(self, value: Value, target: Value) -> Value:
        copy = Value(f"{target.name}.copy", value.shape, "result")
        self.push(
            ElementwiseRegion(
                self.rows(value), "scale", self.f32(value), None, Slot(copy, "f32"), 1.0
            )
        )
        return copy

    def _pending_rope(self, value: Value | None) -> Node | None:
        """The rotation that made a value, if it has been left to its reader."""
        node = self.maker.get(value) if value is not None else None
        pending = node is not None and node.op is Op.ROPE and node.output not in self.in_place_of
        return node if pending else None

    def _emit_heads(
        self, q: HeadChain | None, k: HeadChain | None, rope: Node | None, write: Node | None
    ) -> None:
        angles, half, interleaved, eps, offset = None, 0, False, 0.0, 0.0
        if rope is not None:
            assert isinstance(rope.attrs, RopeAttrs)
            assert rope.inputs[1] is not None
            angles = self.angles[(rope.inputs[1], rope.attrs.magnitude)]
            half, interleaved = int(rope.inputs[1].shape[0]), rope.attrs.interleaved
            head_dim = rope.attrs.head_dim
            norm = self.maker.get(rope.inputs[0]) if rope.inputs[0] else None
            if norm is not None and isinstance(norm.attrs, RmsNormAttrs):
                eps, offset = norm.attrs.eps, norm.attrs.unit_offset
        v, layer = None, None
        if write is not None:
            assert isinstance(write.attrs, KvWriteAttrs)
            v, layer, head_dim = self.f32(write.inputs[1]), write.attrs.layer, write.attrs.head_dim
        self.push(HeadsRegion(q, k, v, head_dim, eps, offset, angles, half, interleaved, layer))

    def _kv_write(self, node: Node) -> None:
        assert isinstance(node.attrs, KvWriteAttrs)
        k_rope = self._pending_rope(node.inputs[0])
        if k_rope is None:
            k = HeadChain(self.f32(node.inputs[0]), node.attrs.num_kv_heads)
            return self._emit_heads(None, k, None, node)
        k = self._chain(k_rope)
        q_rope = self._query_rope_of(node.attrs.layer, k_rope)
        q = self._chain(q_rope) if q_rope is not None else None
        self._emit_heads(q, k, k_rope, node)

    def _query_rope_of(self, layer: int, like: Node) -> Node | None:
        """The pending query rotation of a layer, if it can be done together with the keys'."""
        for node in self.graph.nodes:
            if isinstance(node.attrs, AttentionAttrs) and node.attrs.layer == layer:
                rope = self._pending_rope(node.inputs[0])
                if rope is None or self.f32(self._base(rope)) not in self.ready:
                    return None
                alike = rope.inputs[1] is like.inputs[1] and rope.attrs == like.attrs
                return rope if alike and self._norms_alike(rope, like) else None
        return None

    def _norms_alike(self, a: Node, b: Node) -> bool:
        norms = [self.maker.get(n.inputs[0]) if n.inputs[0] else None for n in (a, b)]
        attrs = [n.attrs if n is not None and n.op is Op.RMS_NORM else None for n in norms]
        return attrs[0] == attrs[1]

    def _attention(self, node: Node) -> None:
        rope = self._pending_rope(node.inputs[0])
        if rope is not None:
            self._emit_heads(self._chain(rope), None, rope, None)
        a = node.attrs
        assert isinstance(a, AttentionAttrs)
        assert node.output is not None
        whole_groups = (a.num_heads // a.num_kv_heads * a.head_dim) % _GROUP == 0
        outs = self.outs_of(node.output, whole_groups)
        self.push(
            AttentionRegion(
                self.f32(node.inputs[0]),
                a.num_heads,
                a.layer,
                a.scale,
                a.window or 0,
                a.softcap or 0.0,
                outs,
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

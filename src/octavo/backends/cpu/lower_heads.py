"""Lowering of what happens to heads: norms, rotation, cache writes, attention."""

from __future__ import annotations

from octavo.backends.cpu.facts import Facts
from octavo.backends.cpu.regions import (
    AnglesRegion,
    AttentionRegion,
    ElementwiseRegion,
    HeadChain,
    HeadsRegion,
    Slot,
)
from octavo.graph.graph import Node, Value
from octavo.graph.ops import AttentionAttrs, KvWriteAttrs, Op, RmsNormAttrs, RopeAttrs

_GROUP = 32  # activations that share a scale; a fused quantize needs whole groups


class HeadLowering(Facts):
    """Rotations wait for the cache write or attention that reads them, then run in place."""

    def _is_head_norm(self, norm: Node, rope: Node) -> bool:
        weight = norm.inputs[1]
        assert weight is not None
        assert isinstance(rope.attrs, RopeAttrs)
        return weight.shape == (rope.attrs.head_dim,) and self._exclusive(norm.inputs[0])

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
                node.inputs[1],
                a.num_heads,
                a.layer,
                a.scale,
                a.window or 0,
                a.softcap or 0.0,
                a.causal,
                outs,
            )
        )

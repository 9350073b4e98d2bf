"""Lowering of multi-head latent attention: products of heads, cache writes, attention."""

from __future__ import annotations

from octavo.backends.cpu.facts import Facts
from octavo.backends.cpu.regions import (
    HeadLinearRegion,
    LatentAttentionRegion,
    LatentWriteRegion,
)
from octavo.errors import BackendError
from octavo.graph.graph import Node
from octavo.graph.ops import HeadLinearAttrs, LatentAttentionAttrs, LatentWriteAttrs

MAX_HEAD = 8192
"""Rows and columns of a head's matrix: what a thread's tile has room for."""


class LatentLowering(Facts):
    """A region an operator: what reads their results is fused elsewhere."""

    def _head_linear(self, node: Node) -> None:
        a, weight = node.attrs, node.inputs[1]
        assert isinstance(a, HeadLinearAttrs)
        assert weight is not None
        n, k = int(weight.shape[0]) // a.num_heads, int(weight.shape[1])
        if max(n, k) > MAX_HEAD:
            raise BackendError(
                f"cpu: '{weight.name}' has heads of {n} x {k}, expected at most {MAX_HEAD} each way"
            )
        rows, source = self._rows_of(node), self.f32(node.inputs[0])
        self.push(HeadLinearRegion(rows, source, weight, a.num_heads, self._out(node)))

    def _latent_write(self, node: Node) -> None:
        assert isinstance(node.attrs, LatentWriteAttrs)
        latent, key = (self.f32(value) for value in node.inputs)
        self.push(LatentWriteRegion(latent, key, node.attrs.layer))

    def _latent_attention(self, node: Node) -> None:
        a = node.attrs
        assert isinstance(a, LatentAttentionAttrs)
        q, q_rope = (self.f32(value) for value in node.inputs)
        self.push(LatentAttentionRegion(q, q_rope, a.num_heads, a.layer, a.scale, self._out(node)))

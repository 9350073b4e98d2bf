"""Regions -> native instructions, with buffers by slot and matrices by weight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo._native import Executor
from octavo.backends.cpu.placement import Placement
from octavo.backends.cpu.regions import (
    AnglesRegion,
    AttentionRegion,
    ElementwiseRegion,
    EmbedRegion,
    ExpertsRegion,
    GatedRegion,
    GateRowsRegion,
    HeadChain,
    HeadLinearRegion,
    HeadsRegion,
    LatentAttentionRegion,
    LatentWriteRegion,
    LinearRegion,
    LowRankRegion,
    MeanRegion,
    NormRegion,
    OutputRegion,
    Product,
    QuantizeRegion,
    Region,
    RouteRegion,
    SelectRegion,
    Slot,
)
from octavo.graph.graph import Value

_NONE = -1
_NO_HEADS = (_NONE, 0, 0)


class Emitter:
    """vector_of reads a small weight or constant as float32; matrices_of gives the ids of a
    weight's packed matrices: one, or one an expert."""

    def __init__(
        self,
        executor: Executor,
        placement: Placement,
        vector_of: Callable[[Value], NDArray[np.float32]],
        matrices_of: Callable[[Value], list[int]],
        size_of: Callable[[Slot], int],
    ) -> None:
        self._executor = executor
        self._vector_of = vector_of
        self._matrices_of = matrices_of
        self._buffers = {
            slot: executor.place_scratch(size_of(slot), offset)
            if slot.form == "scratch"
            else executor.place_buffer(int(slot.value.shape[1]), slot.form == "q8", offset)
            for slot, offset in placement.offsets.items()
        }
        executor.allocate_arena(placement.arena_bytes)

    def emit(self, region: Region) -> None:
        """Append one region's instruction to the program."""
        e = self._executor
        match region:
            case EmbedRegion():
                self._embed(region)
            case AnglesRegion():
                freq = self._floats(region.inv_freq)
                e.angles(freq, region.magnitude, self._id(region.out))
            case NormRegion():
                self._norm(region)
            case QuantizeRegion():
                order = [] if region.order is None else region.order.tolist()
                e.quantize(region.rows, self._id(region.source), self._id(region.out), order)
            case LinearRegion():
                parts = [self._part(p) for p in region.products]
                e.linear(region.rows, self._id(region.source), parts)
            case LowRankRegion() as r:
                matrices = [self._matrix_of(weight) for weight in r.weights]
                e.low_rank(r.rows, self._id(r.source), matrices)
            case GatedRegion():
                self._gated(region)
            case HeadsRegion():
                self._heads(region)
            case AttentionRegion():
                self._attention(region)
            case HeadLinearRegion() as r:
                matrix = self._matrix_of(r.weight)
                e.head_linear(r.rows, self._id(r.source), matrix, r.num_heads, self._id(r.out))
            case LatentWriteRegion() as r:
                e.latent_write(self._id(r.latent), self._id(r.key), r.layer)
            case LatentAttentionRegion() as r:
                q, q_rope, out = self._id(r.q), self._id(r.q_rope), self._id(r.out)
                e.latent_attention(q, q_rope, r.num_heads, r.layer, r.scale, out)
            case ElementwiseRegion():
                a, b, out = self._id(region.a), self._id(region.b), self._id(region.out)
                e.elementwise(region.rows, region.kind, a, b, out, region.number)
            case RouteRegion():
                self._route(region)
            case ExpertsRegion():
                self._experts(region)
            case GateRowsRegion():
                source, gate, out = (self._id(s) for s in (region.source, region.gate, region.out))
                e.gate_rows(region.rows, source, gate, out)
            case SelectRegion():
                e.select(self._id(region.source), self._id(region.out))
            case MeanRegion():
                e.mean(self._id(region.source), self._id(region.out))
            case OutputRegion():
                e.output(region.rows, self._id(region.source))

    def _matrix_of(self, weight: Value) -> int:
        (matrix,) = self._matrices_of(weight)
        return matrix

    def _id(self, slot: Slot | None) -> int:
        return _NONE if slot is None else self._buffers[slot]

    def _floats(self, value: Value | None) -> list[float]:
        return [] if value is None else self._vector_of(value).tolist()

    def _outs(self, outs: list[Slot]) -> tuple[int, int]:
        by_form = {slot.form: self._buffers[slot] for slot in outs}
        return by_form.get("f32", _NONE), by_form.get("q8", _NONE)

    def _embed(self, r: EmbedRegion) -> None:
        table, out = self._matrix_of(r.table), self._id(r.out)
        self._executor.embed(table, out, r.scale, r.by, r.offset)

    def _norm(self, r: NormRegion) -> None:
        weight = self._floats(r.weight)
        source = self._id(r.source)
        bias = self._floats(r.bias)
        outs = self._outs(r.outs)
        self._executor.norm(r.rows, source, weight, bias, r.centred, r.eps, r.offset, *outs)

    def _part(self, p: Product) -> tuple[int, int, int, list[float], int]:
        matrix, bias = self._matrix_of(p.weight), self._floats(p.bias)
        return matrix, self._id(p.out), 0, bias, self._id(p.residual)

    def _gated(self, r: GatedRegion) -> None:
        self._executor.gated(
            r.rows,
            self._id(r.source),
            self._matrix_of(r.gate),
            self._matrix_of(r.up),
            r.activation,
            self._floats(r.gate_bias),
            self._floats(r.up_bias),
            *self._outs(r.outs),
        )

    def _chain(self, chain: HeadChain | None) -> tuple[int, int, int]:
        return (self._id(chain.slot), 0, chain.num_heads) if chain else _NO_HEADS

    def _heads(self, r: HeadsRegion) -> None:
        v = (self._id(r.v), 0, r.k.num_heads) if r.v and r.k else _NO_HEADS
        self._executor.heads(
            self._chain(r.q),
            self._chain(r.k),
            v,
            r.head_dim,
            self._floats(r.q.norm if r.q else None),
            self._floats(r.k.norm if r.k else None),
            r.eps,
            r.offset,
            self._id(r.angles),
            r.rotary_half,
            r.interleaved,
            _NONE if r.layer is None else r.layer,
        )

    def _attention(self, r: AttentionRegion) -> None:
        q = (self._id(r.source), 0, r.num_heads)
        outs = self._outs(r.outs)
        sinks = self._floats(r.sinks)
        self._executor.attention(q, sinks, r.layer, r.scale, r.window, r.softcap, r.causal, *outs)

    def _route(self, r: RouteRegion) -> None:
        a = r.attrs
        self._executor.route(
            r.rows,
            self._id(r.source),
            self._id(r.out),
            self._floats(r.bias),
            a.top_k,
            a.scores,
            a.normalize,
            a.scale,
            a.num_groups,
            a.top_groups,
            a.group_score == "top2",
        )

    def _experts(self, r: ExpertsRegion) -> None:
        matrices = zip(*(self._matrices_of(weight) for weight in r.weights), strict=True)
        gate_bias, up_bias, down_bias = (self._floats(bias) for bias in r.biases)
        order = np.empty((0, 0), np.int32) if r.order is None else r.order
        self._executor.experts(
            r.rows,
            r.dims,
            self._id(r.source),
            self._id(r.routes),
            self._id(r.scratch),
            self._id(r.out),
            self._id(r.residual),
            list(matrices),
            gate_bias,
            up_bias,
            down_bias,
            r.attrs.activation,
            r.attrs.alpha,
            r.attrs.limit,
            order,
        )

"""Regions: what a graph is cut into. Each becomes one native instruction with a barrier after it.

A `Slot` is a value in one form: float rows, or int8 rows with a scale per group of 32. Regions name
slots; `placement.py` gives slots their memory, `emit.py` turns regions into instructions.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from octavo.graph.graph import Value
from octavo.graph.ops import ExpertsAttrs, RouteAttrs

Form = Literal["f32", "q8", "scratch"]
ElementwiseKind = Literal[
    "add", "mul", "scale", "silu", "gelu", "gelu_erf", "relu", "tanh", "softcap"
]
GateKind = Literal["silu", "gelu", "gelu_erf"]
RowKind = Literal["tokens", "logits"]


class Slot(Struct, frozen=True):
    """A value in one form. Equal when both are the same. "scratch" is memory for one region."""

    value: Value
    form: Form


class Region(Struct):
    """reads and writes decide lifetimes. in_place: a written slot may take over a read one's
    memory, element by element."""

    def reads(self) -> list[Slot]:
        return []

    def writes(self) -> list[Slot]:
        return []

    def in_place(self) -> list[tuple[Slot, Slot]]:
        """Pairs (written, read) that may share memory if the read slot dies here."""
        return []


class EmbedRegion(Region):
    """by: what chooses a token's row: its id, its position + offset, or its type."""

    table: Value
    out: Slot
    scale: float
    by: Literal["tokens", "positions", "types"] = "tokens"
    offset: int = 0

    def writes(self) -> list[Slot]:
        return [self.out]


class AnglesRegion(Region):
    """cos and sin of every position, once a step; shared by all layers of one kind."""

    inv_freq: Value
    magnitude: float
    out: Slot

    def writes(self) -> list[Slot]:
        return [self.out]


class NormRegion(Region):
    """centred: a layer norm, with a bias perhaps; else an RMS norm."""

    rows: RowKind
    source: Slot
    weight: Value
    eps: float
    offset: float
    outs: list[Slot]
    centred: bool = False
    bias: Value | None = None

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return self.outs


class QuantizeRegion(Region):
    """order: element i of a row is element order[i] of the source's; None: as they are."""

    rows: RowKind
    source: Slot
    out: Slot
    order: NDArray[np.int32] | None = None

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return [self.out]


class Product(Struct):
    """One matrix of a LinearRegion. out None: straight into the logits."""

    weight: Value
    bias: Value | None
    out: Slot | None
    residual: Slot | None = None


class LinearRegion(Region):
    """Products that read one input, such as q, k and v."""

    rows: RowKind
    source: Slot
    products: list[Product] = field(default_factory=list)

    def reads(self) -> list[Slot]:
        return [self.source, *(p.residual for p in self.products if p.residual)]

    def writes(self) -> list[Slot]:
        return [p.out for p in self.products if p.out]

    def in_place(self) -> list[tuple[Slot, Slot]]:
        return [
            (p.out, p.residual)
            for p in self.products
            if p.out and p.residual and p.residual != self.source
        ]


class LowRankRegion(Region):
    """x A^T of the rows that have an adapter, for products that read x: the region after it adds
    the rest to them. Keeps its results to itself."""

    rows: RowKind
    source: Slot
    weights: list[Value]

    def reads(self) -> list[Slot]:
        return [self.source]


class GatedRegion(Region):
    """activation(x gate^T) * (x up^T), quantized where the next product wants it."""

    rows: RowKind
    source: Slot
    gate: Value
    up: Value
    gate_bias: Value | None
    up_bias: Value | None
    activation: GateKind
    outs: list[Slot]

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return self.outs


class HeadChain(Struct):
    """What happens to the heads of one projection, in place: norm, then rotation."""

    slot: Slot
    num_heads: int
    norm: Value | None = None


class HeadsRegion(Region):
    """Head norms, rotation and the cache write, in place on the projections' outputs."""

    q: HeadChain | None
    k: HeadChain | None
    v: Slot | None
    head_dim: int
    eps: float
    offset: float
    angles: Slot | None
    rotary_half: int
    interleaved: bool
    layer: int | None

    def reads(self) -> list[Slot]:
        chains = [c.slot for c in (self.q, self.k) if c]
        return [*chains, *(s for s in (self.v, self.angles) if s)]


class AttentionRegion(Region):
    source: Slot
    sinks: Value | None
    num_heads: int
    layer: int
    scale: float
    window: int
    softcap: float
    causal: bool
    outs: list[Slot]

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return self.outs


class HeadLinearRegion(Region):
    """Each head of the rows by its own rows of one matrix."""

    rows: RowKind
    source: Slot
    weight: Value
    num_heads: int
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return [self.out]


class LatentWriteRegion(Region):
    latent: Slot
    key: Slot
    layer: int

    def reads(self) -> list[Slot]:
        return [self.latent, self.key]


class LatentAttentionRegion(Region):
    q: Slot
    q_rope: Slot
    num_heads: int
    layer: int
    scale: float
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.q, self.q_rope]

    def writes(self) -> list[Slot]:
        return [self.out]


class ElementwiseRegion(Region):
    """out None: in place on the logits."""

    rows: RowKind
    kind: ElementwiseKind
    a: Slot | None
    b: Slot | None
    out: Slot | None
    number: float = 0.0

    def reads(self) -> list[Slot]:
        return [s for s in (self.a, self.b) if s]

    def writes(self) -> list[Slot]:
        return [self.out] if self.out else []

    def in_place(self) -> list[tuple[Slot, Slot]]:
        return [(self.out, s) for s in self.reads()] if self.out else []


class RouteRegion(Region):
    rows: RowKind
    source: Slot
    bias: Value | None
    attrs: RouteAttrs
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return [self.out]


class ExpertsRegion(Region):
    """weights: gate, up and down of all experts; biases likewise. order: [E, D], the elements of a
    float row that are an expert's columns, which it quantizes itself. A few native instructions,
    which share the scratch."""

    rows: RowKind
    source: Slot
    routes: Slot
    weights: tuple[Value, Value, Value]
    biases: tuple[Value | None, Value | None, Value | None]
    attrs: ExpertsAttrs
    quantized_in: bool
    quantized_hidden: bool
    order: NDArray[np.int32] | None
    out: Slot
    residual: Slot | None = None

    @property
    def scratch(self) -> Slot:
        """Rows sorted by expert, and what becomes of them."""
        return Slot(self.out.value, "scratch")

    @property
    def dims(self) -> tuple[int, int, int, int, bool, bool]:
        """experts, chosen of them, features, hidden, int8 rows in, int8 hidden rows."""
        num_experts, hidden, features = (int(size) for size in self.weights[0].shape)
        chosen = int(self.routes.value.shape[1]) // 2
        return num_experts, chosen, features, hidden, self.quantized_in, self.quantized_hidden

    def reads(self) -> list[Slot]:
        return [self.source, self.routes, *([self.residual] if self.residual else [])]

    def writes(self) -> list[Slot]:
        return [self.out, self.scratch]

    def in_place(self) -> list[tuple[Slot, Slot]]:
        return [(self.out, self.residual)] if self.residual else []


class GateRowsRegion(Region):
    """source * sigmoid(gate), one gate a row."""

    rows: RowKind
    source: Slot
    gate: Slot
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.source, self.gate]

    def writes(self) -> list[Slot]:
        return [self.out]

    def in_place(self) -> list[tuple[Slot, Slot]]:
        return [(self.out, self.source)]


class SelectRegion(Region):
    source: Slot
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return [self.out]


class MeanRegion(Region):
    """For each logit row, the mean row of its sequence."""

    source: Slot
    out: Slot

    def reads(self) -> list[Slot]:
        return [self.source]

    def writes(self) -> list[Slot]:
        return [self.out]


class OutputRegion(Region):
    """Copies a float slot to the logits, for graphs that do not end in a product."""

    rows: RowKind
    source: Slot

    def reads(self) -> list[Slot]:
        return [self.source]

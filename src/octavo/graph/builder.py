"""GraphBuilder: one method per operator; each names its result and computes its shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from octavo.errors import GraphError
from octavo.graph.check import check_graph
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import (
    AttentionAttrs,
    Attrs,
    EmbedPositionsAttrs,
    ExpertsAttrs,
    HeadLinearAttrs,
    KvWriteAttrs,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    LayerNormAttrs,
    NoAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RouteAttrs,
    ScaleAttrs,
    Shape,
    SoftcapAttrs,
)
from octavo.graph.rules import RuleError, result_shape


class GraphBuilder:
    """Collects nodes in execution order. A node that breaks its operator's rule raises GraphError
    at once, naming itself. `name` is a result's own part of its name; scopes go before it.
    """

    def __init__(self) -> None:
        self.tokens = Value("tokens", ("T",), "input")
        self.positions = Value("positions", ("T",), "input")
        self.types = Value("types", ("T",), "input")
        self._nodes: list[Node] = []
        self._stored: dict[str, Value] = {}
        self._constants: dict[str, NDArray[np.float32]] = {}
        self._uses: dict[str, int] = {}
        self._scope = ""

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Results made inside are named "name.…"."""
        outer, self._scope = self._scope, f"{self._scope}{name}."
        yield
        self._scope = outer

    def weight(self, name: str, shape: Shape) -> Value:
        """The tensor of this name; asking twice gives the same value."""
        return self._store(Value(name, shape, "weight"))

    def constant(self, name: str, array: NDArray[np.float32]) -> Value:
        """A small array kept in the graph itself, such as rotary frequencies."""
        value = self._store(Value(name, array.shape, "constant"))
        self._constants[name] = np.ascontiguousarray(array, np.float32)
        return value

    def embed(self, table: Value, *, name: str = "embed") -> Value:
        """table[V, D] -> rows of the step's tokens [T, D]."""
        return self._result(Op.EMBED, (self.tokens, table), NoAttrs(), name)

    def embed_positions(self, table: Value, offset: int = 0, *, name: str = "places") -> Value:
        """table[P, D] -> rows of the step's positions [T, D]."""
        inputs = (self.positions, table)
        return self._result(Op.EMBED_POSITIONS, inputs, EmbedPositionsAttrs(offset), name)

    def embed_types(self, table: Value, *, name: str = "segments") -> Value:
        """table[Y, D] -> rows of the step's token types [T, D]."""
        return self._result(Op.EMBED_TYPES, (self.types, table), NoAttrs(), name)

    def linear(
        self, x: Value, weight: Value, bias: Value | None = None, *, name: str = "linear"
    ) -> Value:
        """x[M, K] times weight[N, K] transposed, plus bias[N] -> [M, N]."""
        return self._result(Op.LINEAR, (x, weight, bias), NoAttrs(), name)

    def rms_norm(
        self, x: Value, weight: Value, eps: float, unit_offset: float = 0.0, *, name: str = "norm"
    ) -> Value:
        """Normalise each run of len(weight) features of x[M, G*D]."""
        return self._result(Op.RMS_NORM, (x, weight), RmsNormAttrs(eps, unit_offset), name)

    def layer_norm(
        self, x: Value, weight: Value, bias: Value | None, eps: float, *, name: str = "norm"
    ) -> Value:
        """Centre and normalise each row of x[M, D]."""
        return self._result(Op.LAYER_NORM, (x, weight, bias), LayerNormAttrs(eps), name)

    def rope(self, x: Value, inv_freq: Value, attrs: RopeAttrs, *, name: str = "rope") -> Value:
        """Rotate the heads of x[T, H*head_dim] by their positions."""
        return self._result(Op.ROPE, (x, inv_freq), attrs, name)

    def kv_write(self, k: Value, v: Value, attrs: KvWriteAttrs) -> None:
        """Write k and v [T, Hkv*head_dim] into the paged cache of a layer."""
        self._append(Op.KV_WRITE, (k, v), attrs, f"kv_write.{attrs.layer}")

    def attention(
        self,
        q: Value,
        attrs: AttentionAttrs,
        sinks: Value | None = None,
        *,
        name: str = "attention",
    ) -> Value:
        """q[T, H*head_dim] over the paged cache of its layer; a sink[H] a head may take weight."""
        return self._result(Op.ATTENTION, (q, sinks), attrs, name)

    def head_linear(
        self, x: Value, weight: Value, num_heads: int, *, name: str = "head_linear"
    ) -> Value:
        """Each head of x[M, H*K] times its own rows of weight[H*N, K] -> [M, H*N]."""
        return self._result(Op.HEAD_LINEAR, (x, weight), HeadLinearAttrs(num_heads), name)

    def latent_write(self, latent: Value, key: Value, attrs: LatentWriteAttrs) -> None:
        """Write latent [T, R] and rotated key [T, P] into the paged cache of a layer."""
        self._append(Op.LATENT_WRITE, (latent, key), attrs, f"latent_write.{attrs.layer}")

    def latent_attention(
        self, q: Value, q_rope: Value, attrs: LatentAttentionAttrs, *, name: str = "attention"
    ) -> Value:
        """q[T, H*R] and q_rope[T, H*P] over the latents of its layer -> [T, H*R]."""
        return self._result(Op.LATENT_ATTENTION, (q, q_rope), attrs, name)

    def add(self, a: Value, b: Value, *, name: str = "add") -> Value:
        """a + b, of one shape."""
        return self._result(Op.ADD, (a, b), NoAttrs(), name)

    def mul(self, a: Value, b: Value, *, name: str = "mul") -> Value:
        """a * b elementwise, of one shape."""
        return self._result(Op.MUL, (a, b), NoAttrs(), name)

    def scale(self, x: Value, factor: float, *, name: str = "scale") -> Value:
        """x * factor."""
        return self._result(Op.SCALE, (x,), ScaleAttrs(factor), name)

    def silu(self, x: Value, *, name: str = "silu") -> Value:
        """x * sigmoid(x)."""
        return self._result(Op.SILU, (x,), NoAttrs(), name)

    def gelu(self, x: Value, *, name: str = "gelu") -> Value:
        """Tanh approximation of x * Phi(x)."""
        return self._result(Op.GELU, (x,), NoAttrs(), name)

    def gelu_erf(self, x: Value, *, name: str = "gelu") -> Value:
        """x * Phi(x)."""
        return self._result(Op.GELU_ERF, (x,), NoAttrs(), name)

    def relu(self, x: Value, *, name: str = "relu") -> Value:
        """max(x, 0)."""
        return self._result(Op.RELU, (x,), NoAttrs(), name)

    def tanh(self, x: Value, *, name: str = "tanh") -> Value:
        """tanh(x)."""
        return self._result(Op.TANH, (x,), NoAttrs(), name)

    def softcap(self, x: Value, cap: float, *, name: str = "softcap") -> Value:
        """cap * tanh(x / cap)."""
        return self._result(Op.SOFTCAP, (x,), SoftcapAttrs(cap), name)

    def route(
        self, logits: Value, bias: Value | None, attrs: RouteAttrs, *, name: str = "routes"
    ) -> Value:
        """logits[M, E], and a bias[E] for the choice -> ids and weights of the chosen [M, 2k]."""
        return self._result(Op.ROUTE, (logits, bias), attrs, name)

    def experts(
        self,
        x: Value,
        routes: Value,
        weights: tuple[Value, Value, Value],
        biases: tuple[Value | None, Value | None, Value | None],
        attrs: ExpertsAttrs,
        *,
        name: str = "experts",
    ) -> Value:
        """x[M, D] through the experts that routes[M, 2k] name. weights and biases: of gate, up and
        down."""
        return self._result(Op.EXPERTS, (x, routes, *weights, *biases), attrs, name)

    def gate_rows(self, x: Value, gate: Value, *, name: str = "gated_rows") -> Value:
        """x[M, D] * sigmoid(gate[M, 1])."""
        return self._result(Op.GATE_ROWS, (x, gate), NoAttrs(), name)

    def select_rows(self, x: Value, *, name: str = "rows") -> Value:
        """x[T, D] -> the rows that need logits [R, D]."""
        return self._result(Op.SELECT_ROWS, (x,), NoAttrs(), name)

    def mean_rows(self, x: Value, *, name: str = "mean") -> Value:
        """x[T, D] -> for each row that needs logits its sequence's mean row [R, D]."""
        return self._result(Op.MEAN_ROWS, (x,), NoAttrs(), name)

    def apply(
        self, op: Op, inputs: Sequence[Value | None], attrs: Attrs, *, name: str = ""
    ) -> Value:
        """Any operator that gives a result, by its name in the operator set."""
        return self._result(op, tuple(inputs), attrs, name or op.value)

    def build(self, output: Value) -> Graph:
        """The finished graph, checked as a whole. Raises GraphError."""
        graph = Graph(self._nodes, output, self._constants)
        check_graph(graph, rules_hold=True)
        return graph

    def _store(self, value: Value) -> Value:
        known = self._stored.setdefault(value.name, value)
        if (known.shape, known.kind) != (value.shape, value.kind):
            raise GraphError(
                f"graph: value '{value.name}' asked for again: got {value.kind} "
                f"{list(value.shape)}, expected {known.kind} {list(known.shape)} as before"
            )
        return known

    def _result(self, op: Op, inputs: tuple[Value | None, ...], attrs: Attrs, name: str) -> Value:
        output = self._append(op, inputs, attrs, name)
        assert output is not None
        return output

    def _append(
        self, op: Op, inputs: tuple[Value | None, ...], attrs: Attrs, name: str
    ) -> Value | None:
        full = self._unique(self._scope + name)
        try:
            shape = result_shape(op, inputs, attrs)
        except RuleError as error:
            raise GraphError(f"graph: node '{full}' ({op.value}): {error}") from None
        output = None if shape is None else Value(full, shape, "result")
        self._nodes.append(Node(op, inputs, output, attrs))
        return output

    def _unique(self, name: str) -> str:
        count = self._uses[name] = self._uses.get(name, 0) + 1
        return name if count == 1 else f"{name}.{count}"

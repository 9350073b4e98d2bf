"""A model run once over the calibration text, one operator after the other, on all tokens at once.

Weights are asked for when their operator's turn comes and dropped after it, so that whoever
supplies them can look at the inputs first. Memory is that of the activations and one weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats, Ints
from octavo.backends.reference import ops
from octavo.errors import UnsupportedError
from octavo.graph import Graph, Node, Op, Value

Supply = Callable[[Node, Value, Floats], Floats | None]
"""Called with a linear operator, its weight and its input [T, K]: the weight [N, K] to compute
with. None ends the run."""
Expand = Callable[[str], Floats]
"""A tensor's numbers by name."""
Lookup = Callable[[str, NDArray[np.signedinteger[Any]]], Floats]
"""Some of its rows."""
SupplyExpert = Callable[[Sequence[str], int, Floats], Sequence[Floats]]
"""Called with weights of experts by name, an expert, and what it multiplies with all of them: the
inputs of those tokens that chose it, [t, K], maybe none. Its matrices [N, K] to compute with."""
Watch = Callable[[Value, Floats], Floats]
"""Called with every result; what it returns takes its place."""

RUN = frozenset(
    {Op.EMBED, Op.EMBED_POSITIONS, Op.SELECT_ROWS, Op.ROPE, Op.KV_WRITE, Op.ATTENTION, Op.LINEAR}
    | {Op.LATENT_WRITE, Op.LATENT_ATTENTION}
    | set(ops.SIMPLE)
)


class Forward:
    """windows: token ids of sequences that do not see each other, all of one length."""

    def __init__(
        self, graph: Graph, windows: Sequence[Sequence[int]], expand: Expand, lookup: Lookup
    ) -> None:
        unknown = sorted({node.op.value for node in graph.nodes if node.op not in RUN})
        if unknown:
            raise UnsupportedError(
                f"quantize: calibration cannot run the operators {', '.join(unknown)}; use the"
                " method rtn, which needs none"
            )
        self.graph, self._expand, self._lookup = graph, expand, lookup
        self.tokens: Ints = np.array(windows, np.int32).reshape(-1)
        self.window = len(windows[0])
        self.positions: Ints = np.tile(np.arange(self.window, dtype=np.int32), len(windows))
        self._supply_expert: SupplyExpert = self._expert
        self._cache: tuple[Floats, Floats] | None = None

    def run(
        self,
        supply: Supply,
        watch: Watch | None = None,
        supply_expert: SupplyExpert | None = None,
    ) -> None:
        """Run all operators in order."""
        self._supply_expert = supply_expert or self._expert
        results: dict[Value, Floats] = {}
        for node, done in zip(self.graph.nodes, last_uses(self.graph), strict=True):
            result = self._run(node, results, supply)
            if result is None and node.op is Op.LINEAR:
                return
            if node.output is not None and result is not None:
                results[node.output] = watch(node.output, result) if watch else result
            for value in done:
                results.pop(value, None)

    def _run(self, node: Node, results: dict[Value, Floats], supply: Supply) -> Floats | None:
        attrs: Any = node.attrs
        if node.op in (Op.EMBED, Op.EMBED_POSITIONS):
            table = node.inputs[1]
            assert table is not None
            places = self.tokens if node.op is Op.EMBED else self.positions + attrs.offset
            return self._lookup(table.name, places)
        if node.op is Op.LINEAR:
            return self._linear(node, results, supply)
        if node.op is Op.EXPERTS:
            return self._experts(node, results)
        x: list[Any] = [value and self._operand(value, results) for value in node.inputs]
        match node.op:
            case Op.SELECT_ROWS:
                same: Floats = x[0]
                return same
            case Op.ROPE:
                return ops.rope(x[0], x[1], self.positions, attrs)
            case Op.KV_WRITE | Op.LATENT_WRITE:
                self._cache = x[0], x[1]
                return None
            case Op.ATTENTION:
                return self._attention(x[0], x[1], attrs)
            case Op.LATENT_ATTENTION:
                return self._latent_attention(x[0], x[1], attrs)
        y: Floats = ops.SIMPLE[node.op](x, attrs)
        return y

    def _linear(self, node: Node, results: dict[Value, Floats], supply: Supply) -> Floats | None:
        source, weight, bias = (*node.inputs, None)[:3]
        assert source is not None
        assert weight is not None
        x = results[source]
        numbers = supply(node, weight, x)
        if numbers is None:
            return None
        return ops.linear(x, numbers, self._operand(bias, results) if bias else None)

    def _experts(self, node: Node, results: dict[Value, Floats]) -> Floats:
        """One expert after the other, each on the tokens that chose it."""
        attrs: Any = node.attrs
        rows, routes = (results[value] for value in node.inputs[:2] if value)
        gate, up, down = (value for value in node.inputs[2:5] if value)
        biases: list[Any] = [value and self._operand(value, results) for value in node.inputs[5:]]
        bias: list[Any] = [*biases, None, None, None][:3]
        chosen = routes[:, : routes.shape[1] // 2].astype(np.int64)
        shares = routes[:, routes.shape[1] // 2 :]
        out: Floats = np.zeros_like(rows)
        for e in range(int(gate.shape[0])):
            own: list[Any] = [None if b is None else b[e] for b in bias]
            token, rank = np.nonzero(chosen == e)
            x = rows[token]
            first, second = self._supply_expert((gate.name, up.name), e, x)
            h = ops.gated(ops.linear(x, first, own[0]), ops.linear(x, second, own[1]), attrs)
            (last,) = self._supply_expert((down.name,), e, h)
            y = ops.linear(h, last, own[2])
            out[token] += shares[token, rank, None] * y
        return out

    def _expert(self, names: Sequence[str], expert: int, x: Floats) -> Sequence[Floats]:
        return [self._lookup(name, np.array([expert]))[0] for name in names]

    def _operand(self, value: Value, results: dict[Value, Floats]) -> Any:
        if value.kind == "result":
            return results[value]
        if value.kind == "constant":
            return self.graph.constants[value.name]
        return self._expand(value.name)

    def _attention(self, q: Floats, sinks: Floats | None, attrs: Any) -> Floats:
        assert self._cache is not None
        k, v = (part.reshape(len(part), attrs.num_kv_heads, -1) for part in self._cache)
        out = np.empty_like(q)
        for start in range(0, len(q), self.window):
            rows = slice(start, start + self.window)
            places = self.positions[rows]
            out[rows] = ops.attend(q[rows], k[rows], v[rows], places, attrs, sinks)
        return out

    def _latent_attention(self, q: Floats, q_rope: Floats, attrs: Any) -> Floats:
        assert self._cache is not None
        cached, out = np.concatenate(self._cache, axis=1), np.empty_like(q)
        for start in range(0, len(q), self.window):
            rows = slice(start, start + self.window)
            places = self.positions[rows]
            out[rows] = ops.attend_latents(q[rows], q_rope[rows], cached[rows], places, attrs)
        return out


def last_uses(graph: Graph) -> list[list[Value]]:
    """Per node, the results that no later node reads."""
    last: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        last.update({v: index for v in node.inputs if v and v.kind == "result"})
    done: list[list[Value]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        done[index].append(value)
    return done

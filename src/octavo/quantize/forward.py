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
Watch = Callable[[Value, Floats], Floats]
"""Called with every result; what it returns takes its place."""

RUN = frozenset(
    {Op.EMBED, Op.EMBED_POSITIONS, Op.SELECT_ROWS, Op.ROPE, Op.KV_WRITE, Op.ATTENTION, Op.LINEAR}
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
        self._cache: tuple[Floats, Floats] | None = None

    def run(self, supply: Supply, watch: Watch | None = None) -> None:
        """Run all operators in order."""
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
        x: list[Any] = [value and self._operand(value, results) for value in node.inputs]
        match node.op:
            case Op.SELECT_ROWS:
                same: Floats = x[0]
                return same
            case Op.ROPE:
                return ops.rope(x[0], x[1], self.positions, attrs)
            case Op.KV_WRITE:
                self._cache = x[0], x[1]
                return None
            case Op.ATTENTION:
                return self._attention(x[0], x[1], attrs)
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


def last_uses(graph: Graph) -> list[list[Value]]:
    """Per node, the results that no later node reads."""
    last: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        last.update({v: index for v in node.inputs if v and v.kind == "result"})
    done: list[list[Value]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        done[index].append(value)
    return done

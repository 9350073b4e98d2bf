"""A graph: nodes over values, in execution order. Built once per model, checked before it runs.

A `Value` is an input of the step ("tokens"), a weight (by name), a constant, or the result of one
node. A weight's numbers are not in the graph: a backend takes them from the checkpoint by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from octavo.graph.ops import AttentionAttrs, Attrs, NoAttrs, Op, Shape

Kind = Literal["input", "weight", "constant", "result"]


class Value(Struct, frozen=True, eq=False):
    """One edge. `name` is unique within a graph; compared by identity."""

    name: str
    shape: Shape
    kind: Kind


class Node(Struct, frozen=True, eq=False):
    """One operator. `inputs` follow the order in ops.py; an absent optional one is None."""

    op: Op
    inputs: tuple[Value | None, ...]
    output: Value | None  # None for KV_WRITE, whose effect is on the cache
    attrs: Attrs = field(default_factory=NoAttrs)


class Graph(Struct):
    """Nodes in execution order. `output` is the logits value [R, vocab] (or a test's result)."""

    nodes: list[Node]
    output: Value
    constants: Mapping[str, NDArray[np.float32]]

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether a token's result depends on those behind it, so that no step may hold a part of
        a sequence, and no step reads what an earlier one cached."""
        return any(isinstance(n.attrs, AttentionAttrs) and not n.attrs.causal for n in self.nodes)

    @property
    def weights(self) -> list[Value]:
        """Weight values in order of first use, each once."""
        seen = {v: None for n in self.nodes for v in n.inputs if v and v.kind == "weight"}
        return list(seen)

    def __str__(self) -> str:
        return "\n".join(_line(node) for node in self.nodes)


def _line(node: Node) -> str:
    args = ", ".join(v.name if v else "-" for v in node.inputs)
    left = f"{node.output.name}{list(node.output.shape)} = " if node.output else ""
    attrs = "" if isinstance(node.attrs, NoAttrs) else f"  {node.attrs}"
    return f"{left}{node.op.value}({args}){attrs}"

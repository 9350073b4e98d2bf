"""How much of the model a product's outputs are: what an error there, relative to them, can change.

A block (attention or MLP) reads the residual stream and adds to it. An error of a part r of any of
its products' outputs becomes about an error r of what the block adds, so it changes the stream by r
times the block's share of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats
from octavo.graph import Graph, Op, Value


class Effects:
    """Watches a run. of: by a weight's name, the mean over tokens of its block's squared size over
    that of the stream after it, at most 1."""

    def __init__(self, graph: Graph) -> None:
        self.of: dict[str, float] = {}
        self._node = {node.output: node for node in graph.nodes if node.output}
        self._place = {value: i for i, value in enumerate(self._node)}
        self._size: dict[Value, NDArray[np.float32]] = {}
        self._block: list[str] = []
        self._start = -1  # the place of the block's first product: the stream is older

    def watch(self, value: Value, x: Floats) -> Floats:
        """To be called with every result in order; gives it back as it is."""
        node = self._node[value]
        self._size[value] = np.einsum("tk,tk->t", x, x)
        if node.op is Op.LINEAR and node.inputs[1] is not None:
            self._start = self._start if self._block else self._place[value]
            self._block.append(node.inputs[1].name)
        parts = sorted(
            (part for part in node.inputs if part in self._size), key=self._place.__getitem__
        )
        if node.op is Op.ADD and len(parts) == 2 and self._place[parts[0]] < self._start:
            share = self._size[parts[1]] / np.maximum(self._size[value], np.float32(1e-30))
            effect = float(np.minimum(share, 1).mean())
            self.of.update(dict.fromkeys(self._block, effect))
            self._block, self._start = [], -1
        return x

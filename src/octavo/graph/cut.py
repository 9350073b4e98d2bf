"""Rewrites of whole graphs."""

from __future__ import annotations

from octavo.graph.check import check_graph
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import Op
from octavo.records import replace


def without_head(graph: Graph) -> Graph:
    """The graph up to what its language-model head reads: final hidden states [R, D] instead of
    logits [R, vocab]. A graph that does not end in a product is given back as it is."""
    maker: dict[Value, Node] = {node.output: node for node in graph.nodes if node.output}
    last = maker[graph.output]
    if last.op is Op.SOFTCAP and last.inputs[0] is not None:
        last = maker[last.inputs[0]]
    states = last.inputs[0]
    if last.op is not Op.LINEAR or states is None:
        return graph
    nodes = graph.nodes[: graph.nodes.index(last)]
    result = replace(graph, nodes=nodes, output=states)
    check_graph(result)
    return result

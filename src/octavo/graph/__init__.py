"""The operator set, graphs over it, their builder and their check.

A model builder makes a `Graph` with `GraphBuilder`; a backend compiles it. Nothing here knows a
model family or a device.
"""

from octavo.graph.builder import GraphBuilder
from octavo.graph.check import check_graph
from octavo.graph.cut import without_head
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
from octavo.graph.rules import RULES, Operand, Rule

__all__ = [
    "RULES",
    "AttentionAttrs",
    "Attrs",
    "EmbedPositionsAttrs",
    "ExpertsAttrs",
    "Graph",
    "GraphBuilder",
    "HeadLinearAttrs",
    "KvWriteAttrs",
    "LatentAttentionAttrs",
    "LatentWriteAttrs",
    "LayerNormAttrs",
    "NoAttrs",
    "Node",
    "Op",
    "Operand",
    "RmsNormAttrs",
    "RopeAttrs",
    "RouteAttrs",
    "Rule",
    "ScaleAttrs",
    "Shape",
    "SoftcapAttrs",
    "Value",
    "check_graph",
    "without_head",
]

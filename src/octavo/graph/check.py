"""Checks a whole graph before it runs: every rule a backend may rely on without asking again."""

from __future__ import annotations

import numpy as np

from octavo.errors import GraphError
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import (
    AttentionAttrs,
    KvWriteAttrs,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    Op,
)
from octavo.graph.rules import RuleError, result_shape


def check_graph(graph: Graph, *, rules_hold: bool = False) -> None:
    """Raise GraphError, naming node and operator, got and expected, at the first broken rule.

    After it returns: operands, ranks, shapes and attributes follow the operators' rules; names are
    unique; every value is defined once and before its use; no result is unused; layers are 0..L-1,
    each written once, before it is read, by heads of one shape; the output is [R, n].

    rules_hold: every node has been held to its operator's rule already, when it was built.
    """
    _check_nodes(graph, rules_hold)
    _check_names(graph)
    _check_layers(graph)
    _check_constants(graph)
    _check_output(graph)


def _fail(index: int, node: Node, got: str, expected: str) -> None:
    name = node.output.name if node.output else f"#{index}"
    raise GraphError(
        f"graph: node '{name}' ({node.op.value}, {index} in order): got {got}, expected {expected}"
    )


def _check_nodes(graph: Graph, rules_hold: bool) -> None:
    defined: set[Value] = set()
    for index, node in enumerate(graph.nodes):
        for value in node.inputs:
            if value and value.kind == "result" and value not in defined:
                _fail(index, node, f"'{value.name}' before its definition", "an earlier result")
        if not rules_hold:
            _check_rule(index, node)
        if node.output is not None:
            if node.output in defined:
                _fail(index, node, "a second definition", "one definition of each value")
            defined.add(node.output)


def _check_rule(index: int, node: Node) -> None:
    try:
        shape = result_shape(node.op, node.inputs, node.attrs)
    except RuleError as error:
        name = node.output.name if node.output else f"#{index}"
        where = f"graph: node '{name}' ({node.op.value}, {index} in order)"
        raise GraphError(f"{where}: {error}") from None
    output = node.output
    if (output is None) != (shape is None):
        wanted = "none" if shape is None else f"a result {list(shape)}"
        _fail(index, node, "no result" if output is None else f"'{output.name}'", wanted)
    if output is not None and shape is not None:
        if output.shape != shape:
            _fail(index, node, f"a result {list(output.shape)}", f"{list(shape)}")
        if output.kind != "result":
            _fail(index, node, f"an output of kind {output.kind}", "kind result")


def _check_names(graph: Graph) -> None:
    named: dict[str, Value] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs, node.output):
            if value is None:
                continue
            if not value.name:
                _fail(index, node, "a value without a name", "a name for every value")
            if named.setdefault(value.name, value) is not value:
                _fail(index, node, f"a second value named '{value.name}'", "unique names")


def _check_layers(graph: Graph) -> None:
    written: dict[int, KvWriteAttrs | LatentWriteAttrs] = {}
    read: set[int] = set()
    for index, node in enumerate(graph.nodes):
        attrs = node.attrs
        if isinstance(attrs, (KvWriteAttrs, LatentWriteAttrs)):
            if attrs.layer != len(written):
                _fail(index, node, f"layer {attrs.layer}", f"layer {len(written)}, in order")
            written[attrs.layer] = attrs
        elif isinstance(attrs, (AttentionAttrs, LatentAttentionAttrs)):
            _check_read(index, node, attrs, written)
            read.add(attrs.layer)
    unread = sorted(set(written) - read)
    if unread:
        raise GraphError(
            f"graph: {Op.KV_WRITE.value}: got layers {unread} written and never read, "
            "expected an attention for each"
        )


def _check_read(
    index: int,
    node: Node,
    attrs: AttentionAttrs | LatentAttentionAttrs,
    written: dict[int, KvWriteAttrs | LatentWriteAttrs],
) -> None:
    write = written.get(attrs.layer)
    if write is None:
        op = Op.LATENT_WRITE if isinstance(attrs, LatentAttentionAttrs) else Op.KV_WRITE
        got = f"layer {attrs.layer} before its {op.value}"
        _fail(index, node, got, "a layer written before")
    elif _cached(write) != _cached(attrs):
        _fail(index, node, _cached(attrs), f"{_cached(write)}, as written")


def _cached(
    attrs: AttentionAttrs | KvWriteAttrs | LatentAttentionAttrs | LatentWriteAttrs,
) -> str:
    """What a layer's cache holds of a token, in words."""
    if isinstance(attrs, (LatentAttentionAttrs, LatentWriteAttrs)):
        return f"latents of {attrs.latent_dim} and keys of {attrs.rope_dim}"
    return f"{attrs.num_kv_heads} KV heads of {attrs.head_dim}"


def _check_constants(graph: Graph) -> None:
    used = {v.name: v for n in graph.nodes for v in n.inputs if v and v.kind == "constant"}
    for name, value in used.items():
        array = graph.constants.get(name)
        if array is None:
            raise GraphError(f"graph: constant '{name}': got no array, expected one")
        if array.shape != value.shape or array.dtype != np.float32:
            got = f"{array.dtype} {list(array.shape)}"
            raise GraphError(
                f"graph: constant '{name}': got {got}, expected float32 {list(value.shape)}"
            )
        if not np.isfinite(array).all():
            raise GraphError(f"graph: constant '{name}': got NaN or infinity, expected numbers")


def _check_output(graph: Graph) -> None:
    results = {node.output for node in graph.nodes if node.output}
    output = graph.output
    if output not in results:
        raise GraphError(f"graph: output '{output.name}': got no node for it, expected a result")
    if output.shape[0] != "R":
        raise GraphError(
            f"graph: output '{output.name}': got {list(output.shape)}, expected [R, n]: "
            "the rows chosen by select_rows"
        )
    used = {value for node in graph.nodes for value in node.inputs}
    idle = sorted(value.name for value in results - used - {output} if value)
    if idle:
        raise GraphError(f"graph: got results nobody reads: {idle}, expected none")

"""Running one operator on any backend, through nothing but the contract.

A graph's only input is tokens. So activations are written into F32 tables, token t selects row t of
each, and the operator's result comes back as "logits" of all rows. Any backend that runs models
runs this unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Backend, BackendOptions, Executable, Floats
from octavo.backends.testing.sequences import PagedSequences
from octavo.backends.testing.tensors import float_tensor
from octavo.errors import BackendError
from octavo.graph import (
    RULES,
    AttentionAttrs,
    Attrs,
    EmbedPositionsAttrs,
    Graph,
    GraphBuilder,
    KvWriteAttrs,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    Op,
    RopeAttrs,
    Value,
)
from octavo.models.config import ModelConfig, RopeConfig
from octavo.weights import Checkpoint, Tensor

Input: TypeAlias = NDArray[Any] | Tensor | None


@dataclass(frozen=True)
class Layout:
    """How rows fall to sequences and steps: sequence s owns the next lengths[s] rows, and each step
    takes at most `chunk` of each sequence's rows (None: all). rows: which rows to return."""

    lengths: tuple[int, ...]
    chunk: int | None = None
    block_size: int = 32
    rows: tuple[int, ...] | None = None
    seed: int = 0

    @property
    def num_rows(self) -> int:
        """T over all steps."""
        return sum(self.lengths)


def run_op(
    backend: Backend,
    op: Op,
    inputs: Sequence[Input],
    attrs: Attrs,
    layout: Layout,
    *,
    weights: str = "native",
    kv_dtype: str = "auto",
    products: str = "auto",
) -> Floats:
    """The operator's result [rows, n] on a backend.

    inputs: arrays [T, features] for activations, arrays or tensors for stored operands, in the
        operator's order. ATTENTION takes q, k, v and perhaps sinks; k and v go
        through KV_WRITE. LATENT_ATTENTION
        takes q, q_rope, latent and key; they go through LATENT_WRITE. EMBED takes ids [T] and a
        table, EMBED_TYPES rows to add to and a table of types, which the tokens go through in
        turn. Raises BackendError where the backend declines.
    """
    tokens, graph, tensors = _one_op_graph(op, inputs, attrs, layout)
    checkpoint = Checkpoint(Path("one-operator"), "gguf", {}, tensors, 0)
    limit = max(layout.num_rows, len(layout.rows or ()))
    options = BackendOptions(
        weights=weights,
        kv_dtype=kv_dtype,
        products=products,
        block_size=layout.block_size,
        max_tokens=limit,
        max_seqs=limit,
    )
    executable = backend.compile(graph, checkpoint, _config(graph, attrs), options)
    try:
        num_types = tensors["table"].shape[0] if op is Op.EMBED_TYPES else 0
        return _run(executable, tokens, layout, num_types)
    finally:
        executable.close()


def _one_op_graph(
    op: Op, inputs: Sequence[Input], attrs: Attrs, layout: Layout
) -> tuple[list[int], Graph, dict[str, Tensor]]:
    maker = _Maker()
    tokens = list(range(layout.num_rows))
    if op is Op.EMBED:
        ids, table = inputs
        assert isinstance(ids, np.ndarray)
        tokens = [int(token) for token in ids]
        result = maker.graph.embed(maker.stored("table", table))
    elif op is Op.EMBED_POSITIONS:
        (table,) = inputs
        assert isinstance(attrs, EmbedPositionsAttrs)
        stored = maker.stored("table", table)
        rows = maker.graph.embed(stored)  # a graph needs its tokens
        result = maker.graph.add(rows, maker.graph.embed_positions(stored, attrs.offset))
    elif op is Op.EMBED_TYPES:
        start, table = inputs
        types = maker.graph.embed_types(maker.stored("table", table))
        result = maker.graph.add(maker.activation("x", start), types)
    elif op is Op.ATTENTION:
        assert isinstance(attrs, AttentionAttrs)
        q, k, v = (maker.activation(name, x) for name, x in zip("qkv", inputs[:3], strict=True))
        sinks = maker.stored("sinks", inputs[3]) if len(inputs) > 3 else None
        cached = KvWriteAttrs(attrs.layer, attrs.num_kv_heads, attrs.head_dim)
        maker.graph.kv_write(k, v, cached)
        result = maker.graph.attention(q, attrs, sinks)
    elif op is Op.LATENT_ATTENTION:
        assert isinstance(attrs, LatentAttentionAttrs)
        names = ("q", "q_rope", "latent", "key")
        made = [maker.activation(name, x) for name, x in zip(names, inputs, strict=True)]
        row = LatentWriteAttrs(attrs.layer, attrs.latent_dim, attrs.rope_dim)
        maker.graph.latent_write(made[2], made[3], row)
        result = maker.graph.latent_attention(made[0], made[1], attrs)
    else:
        result = maker.apply(op, inputs, attrs)
    selected = result if op in (Op.SELECT_ROWS, Op.MEAN_ROWS) else maker.graph.select_rows(result)
    return tokens, maker.graph.build(selected), maker.tensors


class _Maker:
    """A graph builder that also collects the tensors it names."""

    def __init__(self) -> None:
        self.graph = GraphBuilder()
        self.tensors: dict[str, Tensor] = {}

    def activation(self, name: str, array: Input) -> Value:
        """Rows of a float32 table, selected by token."""
        return self.graph.embed(self.stored(f"{name}.rows", array), name=name)

    def stored(self, name: str, given: Input) -> Value:
        """A weight from an array or a tensor."""
        if given is None:
            raise BackendError(f"test: operand '{name}' is missing")
        tensor = given if isinstance(given, Tensor) else float_tensor(name, given)
        self.tensors[name] = Tensor(name, tensor.shape, tensor.scheme, tensor.data)
        return self.graph.weight(name, tensor.shape)

    def apply(self, op: Op, inputs: Sequence[Input], attrs: Attrs) -> Value:
        """The operator on its operands, each made as its rule says."""
        operands = RULES[op].operands
        given = [*inputs, *[None] * (len(operands) - len(inputs))]
        values: list[Value | None] = []
        for operand, array in zip(operands, given, strict=True):
            if array is None:
                values.append(None)
            elif operand.kinds == ("result",):
                values.append(self.activation(operand.name, array))
            else:
                values.append(self.stored(operand.name, array))
        return self.graph.apply(op, values, attrs)


def _config(graph: Graph, attrs: Attrs) -> ModelConfig:
    """The least that a backend may ask of a config; sizes that do not matter are 1."""
    attention = attrs if isinstance(attrs, AttentionAttrs) else None
    head_dim = attrs.head_dim if isinstance(attrs, (AttentionAttrs, RopeAttrs)) else 2
    return ModelConfig(
        architecture="one-operator",
        name="one-operator",
        vocab_size=int(graph.output.shape[1]),
        hidden_size=1,
        num_layers=1 if attention else 0,
        num_heads=attention.num_heads if attention else 1,
        num_kv_heads=attention.num_kv_heads if attention else 1,
        head_dim=head_dim,
        intermediate_size=1,
        norm_eps=1e-6,
        context_length=1 << 16,
        rope=RopeConfig(10000.0, head_dim),
    )


def _run(executable: Executable, tokens: list[int], layout: Layout, num_types: int) -> Floats:
    blocks = sum(-(-length // layout.block_size) for length in layout.lengths) + 2
    executable.allocate_kv(blocks)
    paged = PagedSequences(layout.block_size, blocks, layout.seed)
    starts = np.cumsum([0, *layout.lengths])
    ends = {paged.open(): int(end) for end in starts[1:]}
    done = {sequence: int(starts[sequence]) for sequence in ends}
    out: dict[int, Floats] = {}
    while any(done[s] < ends[s] for s in ends):
        chunk = layout.chunk or layout.num_rows
        spans = {s: range(done[s], min(done[s] + chunk, ends[s])) for s in ends}
        spans = {s: span for s, span in spans.items() if span}
        rows = [row for span in spans.values() for row in span]
        step = paged.step({s: [tokens[row] for row in span] for s, span in spans.items()})
        if num_types:
            step.types = step.tokens % num_types
        if layout.rows is not None:
            step.logit_rows = np.array(layout.rows, np.int32)
            return executable.forward(step).copy()
        out.update(zip(rows, executable.forward(step).copy(), strict=True))
        done |= {s: span.stop for s, span in spans.items()}
    return np.stack([out[row] for row in range(layout.num_rows)])

"""ReferenceBackend and its executable: one operator after the other, each checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.backends.base import (
    Backend,
    BackendOptions,
    Executable,
    Floats,
    Ints,
    MemoryPlan,
    Step,
)
from octavo.backends.check import StepLimits, check_pairs, check_step
from octavo.backends.reference import ops
from octavo.backends.reference.adapters import AdapterTable
from octavo.backends.reference.kv import DTYPES, KvLayer, PagedKv, numbers_per_token
from octavo.backends.reference.weights import WeightTable
from octavo.decoding.batch import SampleResult, SamplingBatch
from octavo.errors import BackendError
from octavo.graph import (
    AttentionAttrs,
    Graph,
    KvWriteAttrs,
    LatentAttentionAttrs,
    LatentWriteAttrs,
    Node,
    Op,
    Value,
    check_graph,
)
from octavo.models.config import ModelConfig
from octavo.weights import Checkpoint
from octavo.weights.adapter import Adapter


class ReferenceBackend(Backend):
    """Computes in float32 whatever the file holds. Threads are NumPy's own affair."""

    name = "reference"

    def plan(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> MemoryPlan:
        table = WeightTable(graph, checkpoint, options.weights)
        return _plan(graph, table, options)

    def compile(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Executable:
        check_graph(graph)
        if options.kv_dtype not in DTYPES:
            known = ", ".join(DTYPES)
            raise BackendError(f"reference: kv_dtype '{options.kv_dtype}': expected one of {known}")
        return ReferenceExecutable(graph, checkpoint, config, options)


class ReferenceExecutable(Executable):
    """Runs a graph node by node; results are freed after their last use."""

    def __init__(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> None:
        self.config = config
        self.block_size = options.block_size
        self.prompts_differ = False
        self._graph = graph
        self._options = options
        self._weights = WeightTable(graph, checkpoint, options.weights)
        self._last_uses = _last_uses(graph)
        self._num_blocks = 0
        self._kv: PagedKv | None = None
        self._adapters = AdapterTable(options.max_adapter_rank)
        self.plan = _plan(graph, self._weights, options)

    def allocate_kv(self, num_blocks: int) -> None:
        dtype = self._options.kv_dtype
        self._kv = PagedKv(_kv_layers(self._graph), num_blocks, self.block_size, dtype)
        self._num_blocks = num_blocks

    def forward(self, step: Step) -> Floats:
        self._paged()
        check_step(step, self._limits())
        results: dict[Value, Floats] = {}
        for node, done in zip(self._graph.nodes, self._last_uses, strict=True):
            result = self._run(node, results, step)
            if node.output is not None and result is not None:
                results[node.output] = result
            for value in done:
                del results[value]
        return results[self._graph.output]

    def step(self, step: Step, sampling: SamplingBatch) -> SampleResult:
        from octavo.decoding import sample_batch

        return sample_batch(self.forward(step), sampling)

    def copy_blocks(self, pairs: Ints) -> None:
        check_pairs(pairs, self._num_blocks)
        self._paged().copy_blocks(pairs)

    def load_adapter(self, number: int, adapter: Adapter) -> None:
        self._adapters.load(number, adapter)

    def unload_adapter(self, number: int) -> None:
        self._adapters.unload(number)

    def close(self) -> None:
        self._weights.clear()
        self._kv = None

    def _limits(self) -> StepLimits:
        o = self._options
        return StepLimits(
            o.max_tokens,
            o.max_seqs,
            o.block_size,
            self._num_blocks,
            _table_rows(self._graph, Op.EMBED, 0),
            _table_rows(self._graph, Op.EMBED_TYPES, 1),
            self._graph.needs_whole_sequences,
        )

    def _paged(self) -> PagedKv:
        if self._kv is None:
            raise BackendError("reference: no KV memory; call allocate_kv before the first step")
        return self._kv

    def _run(self, node: Node, results: dict[Value, Floats], step: Step) -> Floats | None:
        attrs: Any = node.attrs
        if node.op is Op.EMBED:
            table = node.inputs[1]
            assert table is not None
            return self._weights.rows(table, step.tokens)
        if node.op is Op.EMBED_POSITIONS:
            table = node.inputs[1]
            assert table is not None
            return self._weights.rows(table, step.positions + attrs.offset)
        if node.op is Op.EMBED_TYPES:
            table = node.inputs[1]
            assert table is not None
            types = np.zeros_like(step.tokens) if step.types is None else step.types
            return self._weights.rows(table, types)
        x = self._operands(node, results)
        match node.op:
            case Op.LINEAR:
                y = ops.SIMPLE[node.op](x, attrs)
                weight, of_logits = node.inputs[1], node.output and node.output.shape[0] == "R"
                assert weight is not None
                return self._adapters.add(y, x[0], weight.name, step, of_logits=bool(of_logits))
            case Op.SELECT_ROWS:
                rows: Floats = x[0][step.logit_rows]
                return rows
            case Op.MEAN_ROWS:
                return ops.mean_rows(x[0], step.query_start, step.logit_rows)
            case Op.ROPE:
                return ops.rope(x[0], x[1], step.positions, attrs)
            case Op.KV_WRITE:
                self._paged().write(attrs.layer, step.slots, x[0], x[1])
                return None
            case Op.ATTENTION:
                return self._attention(x[0], x[1], attrs, step)
            case Op.LATENT_WRITE:
                self._paged().write_latents(attrs.layer, step.slots, x[0], x[1])
                return None
            case Op.LATENT_ATTENTION:
                return self._latent_attention(x[0], x[1], attrs, step)
        return ops.SIMPLE[node.op](x, attrs)

    def _operands(self, node: Node, results: dict[Value, Floats]) -> list[Any]:
        """Arrays in the operator's order; None where an optional one is absent."""
        return [value and self._operand(value, results) for value in node.inputs]

    def _operand(self, value: Value, results: dict[Value, Floats]) -> Floats:
        return results[value] if value.kind == "result" else self._weights.array(value)

    def _attention(
        self, q: Floats, sinks: Floats | None, attrs: AttentionAttrs, step: Step
    ) -> Floats:
        out = np.empty_like(q)
        for s, length in enumerate(step.seq_len):
            rows = slice(step.query_start[s], step.query_start[s + 1])
            k, v = self._paged().read(attrs.layer, step.block_table[s], int(length))
            out[rows] = ops.attend(q[rows], k, v, step.positions[rows], attrs, sinks)
        return out

    def _latent_attention(
        self, q: Floats, q_rope: Floats, attrs: LatentAttentionAttrs, step: Step
    ) -> Floats:
        out = np.empty_like(q)
        for s, length in enumerate(step.seq_len):
            rows = slice(step.query_start[s], step.query_start[s + 1])
            k, _ = self._paged().read(attrs.layer, step.block_table[s], int(length))
            out[rows] = ops.attend_latents(
                q[rows], q_rope[rows], k[:, 0], step.positions[rows], attrs
            )
        return out


def _kv_layers(graph: Graph) -> list[KvLayer]:
    """In layer order, which the graph check guarantees."""
    kinds = (KvWriteAttrs, LatentWriteAttrs)
    return [node.attrs for node in graph.nodes if isinstance(node.attrs, kinds)]


def _table_rows(graph: Graph, op: Op, default: int) -> int:
    """Rows of the smallest table that tokens (or their types) select from."""
    tables = [node.inputs[1] for node in graph.nodes if node.op is op]
    return min((int(table.shape[0]) for table in tables if table), default=default)


def _last_uses(graph: Graph) -> list[list[Value]]:
    """Per node, the results that no later node reads."""
    last: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        last.update({v: index for v in node.inputs if v and v.kind == "result"})
    last.pop(graph.output, None)
    done: list[list[Value]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        done[index].append(value)
    return done


def _plan(graph: Graph, weights: WeightTable, options: BackendOptions) -> MemoryPlan:
    cell = np.dtype(DTYPES.get(options.kv_dtype, np.float32)).itemsize
    per_token = sum(numbers_per_token(layer) for layer in _kv_layers(graph))
    return MemoryPlan(
        weight_bytes=weights.kept_bytes,
        arena_bytes=_peak_bytes(graph, {"T": options.max_tokens, "R": options.max_seqs}),
        kv_bytes_per_block=per_token * cell * options.block_size,
    )


def _peak_bytes(graph: Graph, sizes: dict[str, int]) -> int:
    """The most that results take at one time, for the largest step."""
    live = peak = 0
    for node, done in zip(graph.nodes, _last_uses(graph), strict=True):
        live += _num_bytes(node.output, sizes) if node.output else 0
        peak = max(peak, live)
        live -= sum(_num_bytes(value, sizes) for value in done)
    return peak


def _num_bytes(value: Value, sizes: dict[str, int]) -> int:
    return 4 * math.prod(sizes[d] if isinstance(d, str) else d for d in value.shape)

"""CpuBackend: lowers a graph, packs its weights, and hands out an executable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from octavo import machine
from octavo._native import Executor, preferred_kv_dtype
from octavo.backends.base import Backend, BackendOptions, Executable, MemoryPlan
from octavo.backends.cpu.adapters import Target, most_places, with_adapters
from octavo.backends.cpu.emit import Emitter
from octavo.backends.cpu.executable import CpuExecutable
from octavo.backends.cpu.expert_weights import ExpertWeights
from octavo.backends.cpu.lower import lower
from octavo.backends.cpu.packing import pack_weights
from octavo.backends.cpu.placement import Placement, place
from octavo.backends.cpu.regions import ExpertsRegion, Region, Slot
from octavo.errors import BackendError
from octavo.graph.graph import Graph, Node, Value
from octavo.graph.ops import KvWriteAttrs, LatentWriteAttrs, Op
from octavo.models.config import ModelConfig
from octavo.weights import dequantize
from octavo.weights.kept import expansions, is_kept_as_floats
from octavo.weights.tensor import Checkpoint, GroupedTensor, Tensor

if TYPE_CHECKING:
    from octavo.backends.cpu.rehearsal import CpuRehearsal, ExpertShape

BLOCK_TOKENS = 32
"""Tokens of a KV block; the attention kernels are written for it."""

KV_DTYPES = ("f32", "f16", "bf16", "int8", "int4")
"""What the KV cache may hold; int8 has one scale per token and KV head, int4 several."""

_MATRIX_OPERAND = dict.fromkeys(
    (Op.EMBED, Op.EMBED_POSITIONS, Op.EMBED_TYPES, Op.LINEAR, Op.HEAD_LINEAR), 1
)
"""Operators that read a packed matrix, and which operand it is. Other weights are small vectors."""

_PRODUCTS = (Op.LINEAR, Op.HEAD_LINEAR)


class CpuBackend(Backend):
    """AVX2 or AVX-512 kernels chosen at run time; see docs/structure.md."""

    name = "cpu"

    def __init__(self) -> None:
        self._planned: _Compilation | None = None

    def plan(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> MemoryPlan:
        self._planned = _Compilation(graph, checkpoint, options)
        return self._planned.plan()

    def compile(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Executable:
        compilation = self._compilation(graph, checkpoint, options)
        return compilation.executable(config, compilation.finish())

    def rehearse(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> CpuRehearsal:
        compilation = self._compilation(graph, checkpoint, options)
        executable = compilation.executable(config, compilation.stand_in())
        from octavo.backends.cpu.rehearsal import CpuRehearsal

        return CpuRehearsal(executable, compilation.expert_shapes())

    def _compilation(
        self, graph: Graph, checkpoint: Checkpoint, options: BackendOptions
    ) -> _Compilation:
        """Usually planned a moment ago."""
        compilation, self._planned = self._planned, None
        if compilation is None or not compilation.is_of(graph, checkpoint, options):
            compilation = _Compilation(graph, checkpoint, options)
        return compilation


def _executor(o: BackendOptions, products: str) -> Executor:
    threads = machine.num_threads(o.num_threads)
    try:
        return Executor(threads, o.max_tokens, max(o.max_seqs, 1), products)
    except RuntimeError as error:  # a limit on processes, most likely
        raise BackendError(f"cpu: {error}; ask for fewer with num_threads") from None


@dataclass
class _Compilation:
    """One graph on its way to an executor. Planning allocates nothing but address space."""

    graph: Graph
    checkpoint: Checkpoint
    options: BackendOptions

    def __post_init__(self) -> None:
        if self.options.block_size != BLOCK_TOKENS:
            raise BackendError(
                f"cpu: block_size is {self.options.block_size}, expected {BLOCK_TOKENS}"
            )
        self.as_float = self.options.weights == "float"
        self.width = int(self.graph.output.shape[1])
        self.products = machine.choose_products(self.options.products)
        self.executor = _executor(self.options, self.products)
        self.executor.set_output_width(self.width)
        self.sources: list[tuple[int, Tensor]] = []  # what is packed into which matrix
        self.experts = ExpertWeights(self.graph, self._stored, as_float=self.as_float)
        self.orders = self._find_orders() | self.experts.read
        self.matrices = self._plan_matrices()
        self.regions: list[Region] = lower(self.graph, self._is_quantized, self.orders)
        self.adapter_bytes = self._enable_adapters()
        self.mixtures = {r.scratch: r for r in self.regions if isinstance(r, ExpertsRegion)}
        self.placement: Placement = place(self.regions, self._size_of)
        self.kv_block_bytes = self._define_kv()

    def _find_orders(self) -> dict[Value, NDArray[np.int32]]:
        """Of the weights that are smaller with their columns in another order, and are read by
        nothing but plain products."""
        if self.as_float:
            return {}
        tensors = self.checkpoint.tensors
        grouped = {n: t.order for n, t in tensors.items() if isinstance(t, GroupedTensor)}
        uses = [(n, v) for n in self.graph.nodes for v in n.inputs if v and v.name in grouped]
        others = {v for n, v in uses if n.op is not Op.LINEAR or n.inputs[1] is not v}
        return {v: grouped[v.name] for _, v in uses if v not in others}

    def _enable_adapters(self) -> int:
        rank = self.options.max_adapter_rank
        if not rank:
            return 0
        self.regions = with_adapters(self.regions)
        return self.executor.enable_adapters(rank, most_places(self.regions))

    def is_of(self, graph: Graph, checkpoint: Checkpoint, options: BackendOptions) -> bool:
        """Whether this is the compilation of just these."""
        same = self.graph is graph and self.checkpoint is checkpoint
        return same and self.options == options

    def plan(self) -> MemoryPlan:
        logits = self.options.max_seqs * self.width * 4
        return MemoryPlan(
            weight_bytes=self.executor.weight_bytes + self.experts.order_bytes,
            arena_bytes=self.placement.arena_bytes
            + logits
            + self.executor.scratch_bytes
            + self.adapter_bytes,
            kv_bytes_per_block=self.kv_block_bytes,
            notes=self._expansions(),
        )

    def _expansions(self) -> tuple[str, ...]:
        if self.as_float:
            return ()
        found = expansions(tensor for _, tensor in self.sources)
        return (*map(str, found), *self.experts.notes())

    def streamed_bytes(self) -> int:
        """The matrices of all products, of a mixture those that one row reads. An embedding table
        of its own is read a row at a time."""
        products = self._dense()
        dense = sum(self._bytes_of(v) for v in self.matrices if v in products)
        chosen = (
            self._bytes_of(weight) * r.dims[1] // r.dims[0]
            for r in self.mixtures.values()
            for weight in r.weights
        )
        return dense + sum(chosen)

    def _dense(self) -> set[Value | None]:
        """The matrices of all products but mixtures'."""
        return {node.inputs[1] for node in self.graph.nodes if node.op in _PRODUCTS}

    def _bytes_of(self, weight: Value) -> int:
        return sum(self.executor.matrix_bytes(matrix) for matrix in self.matrices[weight])

    def expert_shapes(self) -> list[ExpertShape]:
        """The products of all mixtures."""
        return [
            self._expert_shape(weight, experts=r.dims[0], chosen=r.dims[1])
            for r in self.mixtures.values()
            for weight in r.weights
        ]

    def _expert_shape(self, weight: Value, experts: int, chosen: int) -> ExpertShape:
        from octavo.backends.cpu.rehearsal import ExpertShape

        tensor = self._tensor(weight)
        n, k = tensor.shape
        return ExpertShape(tensor.scheme.ggml_type, n, k, self.as_float, experts, chosen)

    def executable(self, config: ModelConfig, executor: Executor) -> CpuExecutable:
        """The executor behind the contract."""
        plan, streamed = self.plan(), self.streamed_bytes()
        changeable = {n.inputs[1] for n in self.graph.nodes if n.op is Op.LINEAR}
        targets = {
            v.name: Target(m[0], self.orders.get(v))
            for v, m in self.matrices.items()
            if v in changeable
        }
        return CpuExecutable(
            executor, config, self.options, plan, self.width, streamed, targets, self._kind()
        )

    def _kind(self) -> str:
        """Products of the executable: in a model kept as floats, or one whose tables alone are
        quantized, prompts do not differ."""
        weights = self._dense() | {w for r in self.mixtures.values() for w in r.weights}
        quantized = any(w is not None and self._is_quantized(w) for w in weights)
        return self.products if quantized else "int8"

    def finish(self) -> Executor:
        """Pack the weights and emit the program."""
        self.executor.allocate_weights()
        pack_weights(self.executor, self.checkpoint, self.sources)
        return self._emit()

    def stand_in(self) -> Executor:
        """The program without the weights: something of their size, at most half of what memory
        is free."""
        from octavo.backends.cpu.rehearsal import MOST_FOOTPRINT

        footprint = min(MOST_FOOTPRINT, machine.memory().available // 2)
        self.executor.stand_in_weights(footprint)
        return self._emit()

    def _emit(self) -> Executor:
        emitter = Emitter(
            self.executor, self.placement, self._vector, self.matrices.__getitem__, self._size_of
        )
        for region in self.regions:
            emitter.emit(region)
        return self.executor

    def _plan_matrices(self) -> dict[Value, list[int]]:
        """One packed matrix per weight (of a mixture, one an expert), in order of first use, so
        that a step reads forward."""
        found: dict[Value, list[int]] = {}
        for node in self.graph.nodes:
            if node.op is Op.EXPERTS:
                self._plan_experts(node, found)
            operand = _MATRIX_OPERAND.get(node.op)
            value = node.inputs[operand] if operand is not None else None
            if value is not None and value not in found:
                found[value] = [self._plan_matrix(self._tensor(value))]
        return found

    def _plan_experts(self, node: Node, found: dict[Value, list[int]]) -> None:
        """Gate and up of an expert lie together: one item of work reads both."""
        gate, up, down = (value for value in node.inputs[2:5] if value is not None)
        slices = self.experts.matrices
        for together in ((gate, up), (down,)):
            for own in zip(*(slices[value] for value in together), strict=True):
                for value, tensor in zip(together, own, strict=True):
                    found.setdefault(value, []).append(self._plan_matrix(tensor))

    def _plan_matrix(self, tensor: Tensor) -> int:
        tensor.require_native()
        n, k = tensor.shape
        matrix = self.executor.plan_matrix(tensor.scheme.ggml_type, n, k, self.as_float)
        self.sources.append((matrix, tensor))
        return matrix

    def _tensor(self, value: Value) -> Tensor:
        """As it is packed; of experts, the first."""
        if value in self.experts.matrices:
            return self.experts.matrices[value][0]
        tensor = self._stored(value)
        if value in self.orders and isinstance(tensor, GroupedTensor):
            return tensor.by_group
        return tensor

    def _stored(self, value: Value) -> Tensor:
        tensor = self.checkpoint.tensors.get(value.name)
        if tensor is None:
            raise BackendError(f"cpu: the checkpoint has no tensor '{value.name}'")
        if tensor.shape != value.shape:
            raise BackendError(
                f"cpu: tensor '{value.name}' is {list(tensor.shape)}, "
                f"the graph wants {list(value.shape)}"
            )
        return tensor

    def _is_quantized(self, weight: Value) -> bool:
        return not self.as_float and not is_kept_as_floats(self._tensor(weight).scheme)

    def _vector(self, value: Value) -> NDArray[np.float32]:
        if value.kind == "constant":
            return np.asarray(self.graph.constants[value.name], np.float32)
        numbers = dequantize(self._tensor(value))
        made = self.experts.made.get(value)
        if made is not None:  # a bias of experts
            numbers = np.take_along_axis(numbers, made, axis=1)
        return numbers.reshape(-1)

    def _size_of(self, slot: Slot) -> int:
        if slot.form == "scratch":
            return self.executor.experts_bytes(self.mixtures[slot].dims)
        return self.executor.buffer_bytes(int(slot.value.shape[1]), slot.form == "q8")

    def _define_kv(self) -> int:
        """Layers by number, from the graph's cache writes: KV heads, elements of a head, and how
        many of these are a latent."""
        writes: dict[int, tuple[int, int, int]] = {}
        for node in self.graph.nodes:
            a = node.attrs
            if isinstance(a, KvWriteAttrs):
                writes[a.layer] = (a.num_kv_heads, a.head_dim, 0)
            elif isinstance(a, LatentWriteAttrs):
                writes[a.layer] = (1, a.latent_dim + a.rope_dim, a.latent_dim)
        layers = [writes[i] for i in sorted(writes)]
        one_at_a_time = self.graph.needs_whole_sequences  # no later step reads what this one writes
        try:
            return self.executor.define_kv(layers, self._kv_dtype(), one_at_a_time)
        except ValueError as error:
            raise BackendError(f"cpu: {error}") from None

    def _keeps_exactly(self) -> bool:
        """Whether keys and values are float32 unless asked otherwise: with float weights, and with
        weights kept as floats where one layer at a time is all that is held."""
        products = [n.inputs[1] for n in self.graph.nodes if n.op is Op.LINEAR]
        rounds = any(weight is not None and self._is_quantized(weight) for weight in products)
        return self.as_float or (self.graph.needs_whole_sequences and not rounds)

    def _kv_dtype(self) -> str:
        if self.options.kv_dtype == "auto":
            return "f32" if self._keeps_exactly() else preferred_kv_dtype()
        if self.options.kv_dtype not in KV_DTYPES:
            raise BackendError(
                f"cpu: kv_dtype is '{self.options.kv_dtype}', expected auto, {', '.join(KV_DTYPES)}"
            )
        return self.options.kv_dtype

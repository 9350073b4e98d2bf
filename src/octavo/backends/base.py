"""The contract between the engine and a backend: plain arrays in, logits or sampled ids out.

A backend compiles (graph, checkpoint) into an `Executable`, which owns packed weights and the
memory of the paged KV cache. It decides nothing about requests: it runs one step at a time. An
executable is used by one thread; `step` releases the GIL for the whole of a native step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from octavo.decoding.batch import SampleResult, SamplingBatch
from octavo.errors import BackendError, UnsupportedError
from octavo.graph.graph import Graph
from octavo.models.config import ModelConfig
from octavo.weights.adapter import Adapter
from octavo.weights.tensor import Checkpoint

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


class Step(Struct):
    """Inputs of one step: T tokens of S sequences, R rows wanted. All int32, C-contiguous.

    A sequence's new tokens are adjacent: rows query_start[s] to query_start[s+1]. seq_len counts
    cached tokens after the step, the new ones included. A slot is block_id * block_size + offset.
    block_table rows are padded with zeros. logit_rows index the T rows and may repeat (samples that
    share a prompt draw from one row). types: the segment of each token, for models that embed it;
    None for all of the first. adapters: the number of each sequence's adapter, -1 for none; None
    where no sequence has one. of_prompts: whether all tokens are of prompts, which an executable
    whose `prompts_differ` computes in its own way; it is never told of others in the same step.
    """

    tokens: Ints  # [T]
    positions: Ints  # [T]
    slots: Ints  # [T]
    query_start: Ints  # [S + 1]
    seq_len: Ints  # [S]
    block_table: Ints  # [S, B]
    logit_rows: Ints  # [R]
    types: Ints | None = None  # [T]
    adapters: Ints | None = None  # [S]
    of_prompts: bool = False


class MemoryPlan(Struct, frozen=True):
    """Bytes an executable holds or will hold; computed before weights are packed.

    notes: for people, one line each, such as what it costs to keep a type in another form.
    """

    weight_bytes: int
    arena_bytes: int
    kv_bytes_per_block: int
    notes: tuple[str, ...] = ()


class Executable(ABC):
    """A graph ready to run, with its weights and KV memory."""

    config: ModelConfig
    block_size: int
    plan: MemoryPlan
    prompts_differ: bool
    """Whether a token of a prompt gets other keys, values and logits, if only in their last bits,
    than the same token generated: then no step may have both, and a cached block serves as one of
    them alone."""

    @abstractmethod
    def allocate_kv(self, num_blocks: int) -> None:
        """Allocate (or replace) the KV memory. Called once, before the first step."""

    @abstractmethod
    def forward(self, step: Step) -> Floats:
        """Run one step; return logits [R, vocab], valid until the next call. Writes the KV cache.

        Raises BackendError if T, S or R exceed the compiled limits.
        """

    @abstractmethod
    def step(self, step: Step, sampling: SamplingBatch) -> SampleResult:
        """`forward` and sampling of the R rows, as one call."""

    @abstractmethod
    def copy_blocks(self, pairs: Ints) -> None:
        """Copy whole KV blocks: pairs [n, 2] of (source id, target id). Before the next step."""

    def load_adapter(self, number: int, adapter: Adapter) -> None:
        """Make an adapter ready for steps that name it by `number`; needs a max_adapter_rank of at
        least its own. Raises BackendError where that cannot be."""
        raise BackendError("backend: adapters are not supported by this backend")

    def unload_adapter(self, number: int) -> None:  # noqa: B027  nothing was loaded
        """Free an adapter that no later step names. Unknown numbers are ignored."""

    def close(self) -> None:  # noqa: B027  an executable without resources has nothing to do
        """Free weights, KV memory and threads. Idempotent."""


class BackendOptions(Struct, frozen=True):
    """weights: "native" keeps quantized types; "float" expands everything to float32.
    kv_dtype: "auto" (the faster 16-bit type, or f32 with float weights), "f32", "f16", "bf16",
    "int8" (one scale per token and KV head), "int4". A backend may decline some.
    num_threads: 0 chooses from affinity, cgroup quota and cores.
    products: how quantized weights are multiplied: "int8", "bf16", "mixed" or "auto".
    max_tokens, max_seqs: largest T and S (and R) of a step.
    max_adapter_rank: largest rank of an adapter's changes; 0: none are loaded, ever.
    """

    weights: str = "native"
    kv_dtype: str = "auto"
    products: str = "auto"
    num_threads: int = 0
    block_size: int = 32
    max_tokens: int = 512
    max_seqs: int = 64
    max_adapter_rank: int = 0


class Rehearsal(ABC):
    """Times steps of a model whose weights are not there. Close it to free its memory."""

    executable: Executable

    @abstractmethod
    def step_s(self, step: Step, sampling: SamplingBatch | None, repeat: int) -> float:
        """Seconds of a step as it would be with weights that come from memory, the median of
        `repeat`. sampling: None where the rows themselves are what is wanted."""

    def close(self) -> None:
        """Free memory and threads. Idempotent."""
        self.executable.close()


class Backend(ABC):
    """Compiles graphs. Callers ask what it can do; they never test its name."""

    name: str

    @abstractmethod
    def plan(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> MemoryPlan:
        """What compiling would need, without doing it."""

    @abstractmethod
    def compile(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Executable:
        """Pack weights and make the executable. Raises BackendError naming an operator or tensor
        it cannot handle, UnsupportedError naming a tensor type."""

    def rehearse(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Rehearsal:
        """An executable that costs what the real one would, without reading the weights.

        Raises UnsupportedError where the backend has no such thing.
        """
        raise UnsupportedError(f"{self.name}: this backend cannot forecast its speed")

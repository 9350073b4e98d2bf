"""From options to everything an engine needs: find, open, plan, compile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.backends import BackendOptions, get_backend
from octavo.backends.base import Backend, Executable, MemoryPlan
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan, plan_engine
from octavo.graph import Graph, without_head
from octavo.machine import Memory, memory, num_threads
from octavo.models import ModelConfig, build_graph, config_from, fit_tensors, pooling_of
from octavo.tokenizer import load_tokenizer
from octavo.tokenizer.base import Tokenizer
from octavo.weights import Checkpoint, open_checkpoint, resolve
from octavo.weights.cache import Progress

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

Loaded = tuple[Executable, Tokenizer | None, EngineOptions, EnginePlan]


@dataclass(frozen=True)
class Opened:
    """A model that was found, described and planned; no weights are packed yet."""

    checkpoint: Checkpoint
    config: ModelConfig
    graph: Graph
    options: EngineOptions
    backend: Backend
    settings: BackendOptions
    memory_plan: MemoryPlan

    @property
    def name(self) -> str:
        return self.config.name or self.checkpoint.path.name

    def plan(self, available: Memory) -> EnginePlan:
        """Fit the KV cache beside the rest; see `plan_engine` for what it raises."""
        length, threads = self.config.context_length, self.settings.num_threads
        plan = plan_engine(self.memory_plan, length, self.options, available, threads, self.name)
        return replace(plan, notes=self.checkpoint.notes)


def open_model(options: EngineOptions, progress: Progress | None = None) -> Opened:
    """Find the model, read its headers, build its graph and plan its memory."""
    checkpoint = open_checkpoint(resolve(options.model, progress))
    config = config_from(checkpoint)
    if options.max_model_len is not None:  # it decides which rotary factors are used
        context = min(config.context_length, options.max_model_len)
        config = replace(config, context_length=context)
    checkpoint = fit_tensors(config, checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    if options.task == "embed":
        graph, options = without_head(graph), _for_embedding(options, checkpoint)
    backend = get_backend(options.backend)
    settings = backend_options(options, num_threads(options.num_threads))
    plan = backend.plan(graph, checkpoint, config, settings)
    return Opened(checkpoint, config, graph, options, backend, settings, plan)


def load(
    options: EngineOptions,
    progress: Progress | None = None,
    report: Callable[[EnginePlan], None] | None = None,
) -> Loaded:
    """The arguments of `Engine`; see `Engine.from_options`."""
    opened = open_model(options, progress)
    plan = opened.plan(memory())
    if report is not None:
        report(plan)
    model = (opened.graph, opened.checkpoint, opened.config, opened.settings)
    with ThreadPoolExecutor(1) as pool:  # weights are packed without the GIL
        compiling = pool.submit(opened.backend.compile, *model)
        tokenizer = load_tokenizer(opened.checkpoint)
        if tokenizer is not None:
            tokenizer.prepare_chat()
        executable = compiling.result()
    return executable, tokenizer, opened.options, plan


def engine_class(usual: type[Engine], options: EngineOptions) -> type[Engine]:
    """The engine that does the options' task."""
    if options.task == "generate":
        return usual
    from octavo.engine.embedding import EmbeddingEngine

    return EmbeddingEngine


def _for_embedding(options: EngineOptions, checkpoint: Checkpoint) -> EngineOptions:
    """Every token of a step may be wanted as a row, and the pooling is known from here on."""
    pooling = pooling_of(checkpoint) if options.pooling == "auto" else options.pooling
    return replace(options, max_num_seqs=options.max_num_batched_tokens, pooling=pooling)


def backend_options(options: EngineOptions, threads: int) -> BackendOptions:
    """What the backend needs to know of the engine's options."""
    return BackendOptions(
        weights=options.weights,
        kv_dtype=options.kv_dtype,
        num_threads=threads,
        block_size=options.block_size,
        max_tokens=options.max_num_batched_tokens,
        max_seqs=min(options.max_num_seqs, options.max_num_batched_tokens),
    )

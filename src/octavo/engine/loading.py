"""From options to everything an engine needs: find, open, plan, compile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.backends import BackendOptions, get_backend
from octavo.backends.base import Executable
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan, plan_engine
from octavo.graph import without_head
from octavo.machine import memory, num_threads
from octavo.models import build_graph, config_from, fit_tensors, pooling_of
from octavo.tokenizer import load_tokenizer
from octavo.tokenizer.base import Tokenizer
from octavo.weights import Checkpoint, open_checkpoint, resolve
from octavo.weights.cache import Progress

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

Loaded = tuple[Executable, Tokenizer | None, EngineOptions, EnginePlan]


def load(
    options: EngineOptions,
    progress: Progress | None = None,
    report: Callable[[EnginePlan], None] | None = None,
) -> Loaded:
    """The arguments of `Engine`; see `Engine.from_options`."""
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
    threads = num_threads(options.num_threads)
    settings = backend_options(options, threads)
    plan = plan_engine(
        backend.plan(graph, checkpoint, config, settings),
        config.context_length,
        options,
        memory(),
        threads,
        config.name or checkpoint.path.name,
    )
    if report is not None:
        report(plan)
    with ThreadPoolExecutor(1) as pool:  # weights are packed without the GIL
        compiling = pool.submit(backend.compile, graph, checkpoint, config, settings)
        tokenizer = load_tokenizer(checkpoint)
        if tokenizer is not None:
            tokenizer.prepare_chat()
        executable = compiling.result()
    return executable, tokenizer, options, plan


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

"""From options to everything an engine needs: find, open, plan, compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from octavo.backends import BackendOptions, get_backend
from octavo.backends.base import Backend, Executable, MemoryPlan
from octavo.decoding.grammar_compiler import tree_bytes
from octavo.engine.adapters import Reader
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan, plan_engine, size
from octavo.errors import FormatError, InvalidParameterError, UnsupportedError
from octavo.graph import Graph, without_head
from octavo.machine import Memory, memory, num_threads
from octavo.models import (
    ModelConfig,
    build_graph,
    config_from,
    embedding_settings,
    fit_tensors,
)
from octavo.records import replace
from octavo.tokenizer import load_tokenizer
from octavo.tokenizer.base import Tokenizer
from octavo.weights import Checkpoint, open_checkpoint, resolve
from octavo.weights.cache import Progress

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.weights.adapter import Adapter

LONGEST_TEXT = 8192
"""Tokens of an encoder's text unless asked otherwise: its step is as long, and so is the arena."""

Loaded = tuple[Executable, Tokenizer | None, EngineOptions, EnginePlan, Reader | None]


class Opened(Struct, frozen=True):
    """A model that was found, described and planned; no weights are packed yet."""

    checkpoint: Checkpoint
    config: ModelConfig
    graph: Graph
    options: EngineOptions
    backend: Backend
    settings: BackendOptions
    memory_plan: MemoryPlan
    adapters: Mapping[str, Adapter] = field(default_factory=dict)  # by path

    @property
    def name(self) -> str:
        return self.config.name or self.checkpoint.path.name

    @property
    def grammar_bytes(self) -> int:
        """What grammars share, once there are any."""
        return tree_bytes(self.config.vocab_size) if self.options.task == "generate" else 0

    def plan(self, available: Memory, grammars: bool = True) -> EnginePlan:
        """Fit the KV cache beside the rest; see `plan_engine` for what it raises."""
        length, threads = self.config.context_length, self.settings.num_threads
        plan = plan_engine(
            self.memory_plan,
            length,
            self.options,
            available,
            threads,
            self.name,
            self.grammar_bytes if grammars else 0,
        )
        return replace(plan, notes=(*plan.notes, *self.checkpoint.notes, *self._about_adapters()))

    def read_adapter(self, path: str) -> Adapter:
        """An adapter in a folder. Raises ModelError naming what does not fit this model."""
        known = self.adapters.get(path)
        return known or _read_adapter(path, self.config, self.checkpoint, self.graph)

    def _about_adapters(self) -> tuple[str, ...]:
        if not self.adapters:
            return ()
        total = size(sum(adapter.num_bytes for adapter in self.adapters.values()))
        return (f"adapters: {len(self.adapters)}, {total} of the weights",)


def open_model(options: EngineOptions, progress: Progress | None = None) -> Opened:
    """Find the model, read its headers, build its graph and plan its memory."""
    checkpoint = open_checkpoint(resolve(options.model, progress))
    config = config_from(checkpoint)
    options = replace(options, task=_task_of(options, config))
    if options.lora and options.task != "generate":
        raise InvalidParameterError("lora", f"adapters are not for task '{options.task}'")
    if options.task == "embed":
        options, config = _for_embedding(options, config, checkpoint)
    if config.encoder is not None:
        options = _for_encoder(options, config)
    if options.max_model_len is not None:  # it decides which rotary factors are used
        context = min(config.context_length, options.max_model_len)
        config = replace(config, context_length=context)
    checkpoint = fit_tensors(config, checkpoint)
    if options.weights == "int8":
        from octavo.weights.rounded import as_int8

        checkpoint = replace(checkpoint, tensors=as_int8(checkpoint.tensors))
    graph = build_graph(config, checkpoint.tensors)
    if options.task == "embed" and config.encoder is None:
        graph = without_head(graph)
    backend = get_backend(options.backend)
    adapters = {p: _read_adapter(p, config, checkpoint, graph) for p in options.lora.values()}
    rank = max([options.max_lora_rank, *(adapter.max_rank for adapter in adapters.values())])
    settings = backend_options(options, num_threads(options.num_threads), config)
    settings = replace(settings, max_adapter_rank=rank)
    plan = backend.plan(graph, checkpoint, config, settings)
    changed = sum(adapter.num_bytes for adapter in adapters.values())
    plan = replace(plan, weight_bytes=plan.weight_bytes + changed)
    return Opened(checkpoint, config, graph, options, backend, settings, plan, adapters)


def _read_adapter(path: str, config: ModelConfig, checkpoint: Checkpoint, graph: Graph) -> Adapter:
    from octavo.models.adapters import read_adapter

    return read_adapter(Path(path), config, checkpoint, graph)


def load(
    options: EngineOptions,
    progress: Progress | None = None,
    report: Callable[[EnginePlan], None] | None = None,
    grammars: bool = True,
    chats: bool = True,
) -> Loaded:
    """The arguments of `Engine`; see `Engine.from_options`."""
    opened = open_model(options, progress)
    plan = opened.plan(memory(), grammars)
    if report is not None:
        report(plan)
    model = (opened.graph, opened.checkpoint, opened.config, opened.settings)
    with ThreadPoolExecutor(1) as pool:  # weights are packed without the GIL
        compiling = pool.submit(opened.backend.compile, *model)
        tokenizer = load_tokenizer(opened.checkpoint)
        if tokenizer is not None:
            _check_vocabulary(opened, tokenizer)
            if chats:
                tokenizer.prepare_chat()
        executable = compiling.result()
    reader = opened.read_adapter if opened.settings.max_adapter_rank else None
    return executable, tokenizer, opened.options, plan, reader


def _check_vocabulary(opened: Opened, tokenizer: Tokenizer) -> None:
    """Raise FormatError if text could become ids that no row of the embeddings stands for. More
    rows than tokens are fine: tables are often padded."""
    rows = opened.config.vocab_size
    if tokenizer.vocab_size > rows:
        path, table = opened.checkpoint.path, opened.checkpoint.tensors.get("token_embd.weight")
        where = path / "tokenizer.json" if path.is_dir() else path
        home = table.home if table is not None and table.home else "tensor 'token_embd.weight'"
        raise FormatError(
            f"{where}: the tokenizer has {tokenizer.vocab_size:,} tokens, but {home} has"
            f" {rows:,} rows; they are of different models"
        )


def engine_class(usual: type[Engine], options: EngineOptions) -> type[Engine]:
    """The engine that does the options' task."""
    if options.task == "generate":
        return usual
    from octavo.engine.embedding import EmbeddingEngine, ScoringEngine

    return EmbeddingEngine if options.task == "embed" else ScoringEngine


def _task_of(options: EngineOptions, config: ModelConfig) -> str:
    """What the engine is to do. Raises InvalidParameterError if the model is for something else,
    UnsupportedError for a classifier that gives more than a score."""
    encoder = config.encoder
    able = (
        ["generate", "embed"] if encoder is None else ["score" if encoder.num_labels else "embed"]
    )
    if options.task not in ("auto", *able):
        expected = " or ".join(f'"{task}"' for task in ("auto", *able))
        got = f"got {options.task!r}, but {config.name} is a model to {' and to '.join(able)}"
        raise InvalidParameterError("task", f"{got}; expected {expected}")
    if encoder is not None and encoder.num_labels > 1:
        raise UnsupportedError(
            f"{config.name}: classifies into {encoder.num_labels} labels; to score pairs of texts "
            "a model has one"
        )
    return able[0] if options.task == "auto" else options.task


def _for_embedding(
    options: EngineOptions, config: ModelConfig, checkpoint: Checkpoint
) -> tuple[EngineOptions, ModelConfig]:
    """Pooling and the longest text as the model's files say. Of a decoder every token of a step may
    be wanted as a row."""
    settings = embedding_settings(checkpoint, is_encoder=config.encoder is not None)
    pooling = settings.pooling if options.pooling == "auto" else options.pooling
    normalize = settings.normalize if options.normalize is None else options.normalize
    rows = options.max_num_batched_tokens if config.encoder is None else options.max_num_seqs
    if settings.max_length is not None:
        context = min(config.context_length, settings.max_length)
        config = replace(config, context_length=context)
    options = replace(options, max_num_seqs=rows, pooling=pooling, normalize=normalize)
    if options.prompts is None:
        named, usual = dict(settings.prompts), settings.default_prompt
        options = replace(options, prompts=named, default_prompt=usual)
    return options, config


def _for_encoder(options: EngineOptions, config: ModelConfig) -> EngineOptions:
    """Texts run whole, and what is cached of them serves within a step only: blocks for one step,
    with one to spare for each text as the scheduler keeps them."""
    length = options.max_model_len or min(config.context_length, LONGEST_TEXT)
    tokens = max(options.max_num_batched_tokens, length)
    blocks = -(-tokens // options.block_size) + 2 * options.max_num_seqs
    fixed = options.num_kv_blocks is not None or options.kv_cache_bytes is not None
    return replace(
        options,
        max_model_len=length,
        num_kv_blocks=options.num_kv_blocks if fixed else blocks,
        enable_prefix_caching=False,
    )


def backend_options(
    options: EngineOptions, threads: int, config: ModelConfig | None = None
) -> BackendOptions:
    """What the backend needs to know of the engine's options. An encoder's step holds its longest
    text, and may want all of its tokens as rows."""
    tokens, rows = options.max_num_batched_tokens, options.max_num_seqs
    if config is not None and config.encoder is not None:
        tokens = rows = max(tokens, options.max_model_len or 0)
    return BackendOptions(
        weights="native" if options.weights == "int8" else options.weights,
        kv_dtype=options.kv_dtype,
        products=options.products,
        num_threads=threads,
        block_size=options.block_size,
        max_tokens=tokens,
        max_seqs=min(rows, tokens),
    )

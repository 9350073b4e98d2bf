"""How much memory the engine takes, decided before any of it is taken."""

from __future__ import annotations

from msgspec import Struct

from octavo.backends.base import MemoryPlan
from octavo.cache import GROUP_BLOCKS
from octavo.engine.options import EngineOptions
from octavo.errors import InvalidParameterError, MemoryPlanError
from octavo.machine import Memory
from octavo.scheduler import SchedulerConfig

KV_SHARE = 0.25  # of what is free after weights and arena, unless asked otherwise
KV_SHARE_LIMIT = 0.8  # for one sequence of an explicit max_model_len


class EnginePlan(Struct, frozen=True):
    """Bytes and counts of a planned engine; str() is the report people see.

    max_model_len: tokens of one request, prompt and output, that always fit.
    grammar_bytes: what grammars share; 0 for an engine that is not to have any.
    notes: lines about the weights, such as what their storage format costs here.
    """

    model: str
    backend: str
    weight_bytes: int
    arena_bytes: int
    kv_bytes_per_block: int
    num_blocks: int
    block_size: int
    max_model_len: int
    num_threads: int
    memory: Memory
    grammar_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def kv_bytes(self) -> int:
        """The KV cache's size; its pages are touched only as blocks come into use."""
        return self.num_blocks * self.kv_bytes_per_block

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache holds in all."""
        return self.num_blocks * self.block_size

    @property
    def total_bytes(self) -> int:
        """Weights, arena, KV cache and what grammars share."""
        return self.weight_bytes + self.arena_bytes + self.kv_bytes + self.grammar_bytes

    def __str__(self) -> str:
        memory, grammars = self.memory, self.grammar_bytes
        rows = [
            ("model", f"{self.model} on {self.backend}, {_count(self.num_threads, 'thread')}"),
            ("weights", size(self.weight_bytes)),
            ("arena", size(self.arena_bytes)),
            ("kv cache", f"{size(self.kv_bytes)}: {self.num_blocks:,} blocks of {self.block_size}"),
            ("", f"{self.kv_tokens:,} tokens, up to {self.max_model_len:,} a request"),
            *([("grammars", f"{size(grammars)}, tokens by their bytes")] if grammars else ()),
            ("total", f"{size(self.total_bytes)} of {size(memory.available)} available"),
            ("limit", f"{size(memory.limit)} ({memory.source})"),
            *(("note", note) for note in self.notes),
        ]
        return "\n".join(f"{name:<9} {value}" for name, value in rows)


def plan_engine(
    plan: MemoryPlan,
    context_length: int,
    options: EngineOptions,
    memory: Memory,
    num_threads: int,
    name: str,
    grammar_bytes: int = 0,
) -> EnginePlan:
    """Fit the KV cache beside weights, arena and what grammars share. Raises MemoryPlanError with
    the numbers if they do not fit, InvalidParameterError if max_model_len exceeds the model's
    context."""
    length = _wanted_length(context_length, options)
    num_blocks = _num_blocks(plan, length, options, memory, grammar_bytes)
    capacity = num_blocks * options.block_size
    if options.max_model_len is not None and capacity < length:
        raise MemoryPlanError(
            f"engine: a KV cache of {num_blocks} blocks holds {capacity:,} tokens, but "
            f"max_model_len asks for {length:,}; lower it or give the cache more memory"
        )
    result = EnginePlan(
        model=name,
        backend=options.backend,
        weight_bytes=plan.weight_bytes,
        arena_bytes=plan.arena_bytes,
        kv_bytes_per_block=plan.kv_bytes_per_block,
        num_blocks=num_blocks,
        block_size=options.block_size,
        max_model_len=min(length, capacity),
        num_threads=num_threads,
        memory=memory,
        grammar_bytes=grammar_bytes,
        notes=plan.notes,
    )
    if result.total_bytes > memory.available:
        raise MemoryPlanError(
            f"engine: {_fixed(plan, grammar_bytes)} and "
            f"{size(result.kv_bytes)} of KV cache do not fit in {size(memory.available)} of "
            f"available memory ({memory.source} {size(memory.limit)}); "
            "choose a smaller model, or lower max_model_len, max_num_seqs or the KV size"
        )
    return result


def size(num_bytes: int) -> str:
    """Bytes for people: "98.4 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} B"


def _wanted_length(context_length: int, options: EngineOptions) -> int:
    if options.max_model_len is None:
        return context_length
    if options.max_model_len > context_length:
        raise InvalidParameterError(
            "max_model_len",
            f"got {options.max_model_len:,}, but the model's context is {context_length:,} tokens",
        )
    return options.max_model_len


def _num_blocks(
    plan: MemoryPlan, length: int, options: EngineOptions, memory: Memory, grammar_bytes: int
) -> int:
    if options.num_kv_blocks is not None:
        return options.num_kv_blocks
    per_block = max(1, plan.kv_bytes_per_block)
    per_sequence = -(-length // options.block_size)
    if options.kv_cache_bytes is not None:
        num_blocks = options.kv_cache_bytes // per_block
    else:
        fixed = plan.weight_bytes + plan.arena_bytes + grammar_bytes
        free = max(0, memory.available - fixed)
        num_blocks = int(free * KV_SHARE) // per_block
        if options.max_model_len is not None:
            num_blocks = max(num_blocks, min(per_sequence, int(free * KV_SHARE_LIMIT) // per_block))
        num_blocks = min(num_blocks, per_sequence * options.max_num_seqs)
    whole_groups = num_blocks // GROUP_BLOCKS * GROUP_BLOCKS
    if whole_groups >= per_sequence:
        num_blocks = whole_groups
    if num_blocks < 1 and options.kv_cache_bytes is not None:
        raise MemoryPlanError(
            f"engine: {size(options.kv_cache_bytes)} of KV cache do not hold one block of "
            f"{size(per_block)}; give at least that, and {size(per_block * per_sequence)} for "
            "the longest request"
        )
    if num_blocks < 1:
        raise MemoryPlanError(
            f"engine: not one KV block of {size(per_block)} fits beside "
            f"{_fixed(plan, grammar_bytes)} in "
            f"{size(memory.available)} of available memory; free some or choose a smaller model"
        )
    return num_blocks


def _fixed(plan: MemoryPlan, grammar_bytes: int) -> str:
    """What is taken beside the KV cache."""
    shared = f", {size(grammar_bytes)} for grammars" if grammar_bytes else ""
    return f"{size(plan.weight_bytes)} of weights, {size(plan.arena_bytes)} of arena{shared}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def scheduler_config(options: EngineOptions, whole_prompts: bool = False) -> SchedulerConfig:
    """The engine's options as the scheduler knows them. whole_prompts: as encoders want them."""
    return SchedulerConfig(
        options.max_num_seqs,
        options.max_num_batched_tokens,
        options.max_num_mixed_tokens,
        tenant_weights=options.tenant_weights,
        preempt_for_priority=options.scheduling_policy == "priority",
        whole_prompts=whole_prompts,
    )

"""How an engine is set up. Every field is also a keyword of `LLM` and a flag of the CLI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

from octavo.decoding.pooling import POOLINGS
from octavo.errors import InvalidParameterError
from octavo.machine import MAX_THREADS

_POSITIVE = (
    *("block_size", "max_num_seqs", "max_num_batched_tokens", "max_num_mixed_tokens"),
    *("max_queue", "max_queued_tokens", "max_grammar_bytes", "max_grammar_depth"),
)
_HEAVY = 1e12  # a tenant's weight beside the usual 1
MAX_LORA_NAME = 128
MAX_LORA_RANK = 1024
_POSITIVE_IF_SET = ("max_model_len", "kv_cache_bytes", "num_kv_blocks")
_MOST = {"kv_cache_bytes": (1 << 63) - 1, "max_queued_tokens": (1 << 63) - 1}  # the others: int32
_CHOICES = {
    "weights": ("native", "float", "int8"),
    "kv_dtype": ("auto", "f32", "f16", "bf16", "int8", "int4"),
    "products": ("auto", "int8", "bf16", "mixed"),
    "scheduling_policy": ("fcfs", "priority"),
    "task": ("auto", "generate", "embed", "score"),
    "pooling": ("auto", *POOLINGS),
}


@dataclass(frozen=True)
class EngineOptions:
    """Checked on construction: a bad value raises InvalidParameterError naming the field.

    model: a path, a short name or a Hugging Face id. weights: "native" keeps quantized types,
    "float" expands to float32, "int8" rounds float matrices to int8. kv_dtype: type of the KV
    cache; "auto" takes the 16-bit type that is fastest here, "int8" halves its memory, "int4" takes
    less than a third of it. products: what quantized weights are multiplied in: "int8"; "bf16",
    which needs a processor with such tiles and is faster for prompts and many streams, slower for
    one; "mixed", bf16 for prompts and int8 for what is generated, where the prefix cache holds
    prompts but not the answers to them; "auto" is mixed where there are such tiles, else int8.
    num_threads: 0 chooses from cores, affinity and quota.
    block_size: tokens of a KV block. max_model_len: prompt + output tokens of one request; None
    takes the model's context, or less if the KV cache cannot hold it. max_num_seqs and
    max_num_batched_tokens: rows and tokens of one step. max_num_mixed_tokens: how many of them may
    be of prompts while other requests decode; fewer make those wait less. kv_cache_bytes or
    num_kv_blocks fix the size of the KV cache; otherwise it follows from need and free memory.
    scheduling_policy: "fcfs", or "priority" (lower first, may preempt). max_queue and
    max_queued_tokens: requests that may wait and their tokens, before QueueFullError.
    max_grammar_bytes and max_grammar_depth: size and nesting of a request's schema or grammar.
    tenant_weights: shares of tenants in the service, 1 for those not named. seed: what seeds of
    requests without one are derived from. task: "generate" text, "embed" it, or "score" pairs of
    texts; "auto" is what the model is for. pooling and normalize: how embeddings are made unless a
    request says it ("auto" and None: as the model's files say; see models/pooling.py). prompts:
    texts by name that may go before a text to embed, default_prompt the one that does unasked;
    None: as the files say. lora: adapters to load, name -> folder. max_lora_rank: largest rank of
    those that may be loaded later; those of `lora` are counted in.
    """

    model: str
    backend: str = "cpu"
    weights: str = "native"
    kv_dtype: str = "auto"
    products: str = "auto"
    num_threads: int = 0
    block_size: int = 32
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_num_mixed_tokens: int = 192
    kv_cache_bytes: int | None = None
    num_kv_blocks: int | None = None
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    max_queue: int = 1024
    max_queued_tokens: int = 2_000_000
    max_grammar_bytes: int = 128 * 1024
    max_grammar_depth: int = 64
    tenant_weights: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    task: str = "auto"
    pooling: str = "auto"
    normalize: bool | None = None
    prompts: dict[str, str] | None = None
    default_prompt: str | None = None
    lora: dict[str, str] = field(default_factory=dict)
    max_lora_rank: int = 0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _check_positive(name, getattr(self, name))
        for name in _POSITIVE_IF_SET:
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                expected = " or ".join(f'"{value}"' for value in allowed)
                got = repr(getattr(self, name))
                raise InvalidParameterError(name, f"got {got}, expected {expected}")
        if self.default_prompt and self.default_prompt not in (self.prompts or ()):
            got = f"got {self.default_prompt!r}, which is not one of `prompts`"
            raise InvalidParameterError("default_prompt", got)
        for name in self.lora:
            if not name or len(name) > MAX_LORA_NAME or not name.isprintable():
                expected = f"1 to {MAX_LORA_NAME} printable characters"
                raise InvalidParameterError(
                    "lora", f"got the name {name!r:.80}, expected {expected}"
                )
        if not 0 <= self.max_lora_rank <= MAX_LORA_RANK:
            got = f"got {self.max_lora_rank}, expected 0 to {MAX_LORA_RANK}"
            raise InvalidParameterError("max_lora_rank", got)
        if not _is_int(self.num_threads) or not 0 <= self.num_threads <= MAX_THREADS:
            got = f"got {self.num_threads!r:.80}, expected 0 (automatic) to {MAX_THREADS}"
            raise InvalidParameterError("num_threads", got)
        for tenant, weight in self.tenant_weights.items():
            if not isinstance(weight, int | float) or not 0 < weight <= _HEAVY:
                got = f"got {weight!r:.80} for {tenant!r:.80}"
                got += f", expected a number above 0, at most {_HEAVY:g}"
                raise InvalidParameterError("tenant_weights", got)


def _check_positive(name: str, value: object) -> None:
    most = _MOST.get(name, (1 << 31) - 1)
    if not _is_int(value) or not 1 <= value <= most:
        got = f"got {value!r:.80}, expected an integer from 1 to {most:,}"
        raise InvalidParameterError(name, got)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)

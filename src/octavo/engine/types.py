"""What goes into the engine and what comes out. Plain data, shared by LLM, CLI and server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from octavo.decoding.params import SamplingParams
from octavo.decoding.pooling import Pooling
from octavo.parsing.parts import Answer

BACKGROUND_PRIORITY = 1 << 32
"""From here on a priority means, under any policy: after everybody else."""

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass
class Request:
    """One prompt. Lower `priority` goes first. prompt is kept for the result only.

    cache_salt separates prefix-cache entries of tenants; use_prefix_cache=False neither reads nor
    is required to write the index. tenant: who the request belongs to; within a priority service
    is shared between tenants by their weights. deadline_s and ttft_deadline_s: moments on the
    monotonic clock by which the last and the first token must be out; a request that misses one
    ends with DeadlineError. resumption: what another engine has shown of the answer already.
    pooling: an embedding is wanted instead of tokens. pair_start: a score is wanted; where in
    prompt_ids the second of two texts begins. lora: the name of the adapter to use, "" for none.
    params are for both embedding.EMBED_ONLY.
    """

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    prompt: str | None = None
    priority: int = 0
    arrival_s: float = 0.0
    cache_salt: str = ""
    use_prefix_cache: bool = True
    tenant: str = ""
    deadline_s: float | None = None
    ttft_deadline_s: float | None = None
    resumption: Resumption | None = None
    pooling: Pooling | None = None
    pair_start: int | None = None
    lora: str = ""

    @property
    def task(self) -> str:
        """What is wanted: "generate", "embed" or "score"."""
        if self.pair_start is not None:
            return "score"
        return "generate" if self.pooling is None else "embed"


@dataclass
class Resumption:
    """How far an answer had come when the engine that gave it died. Another engine goes on from
    here as if nothing had happened: its deltas begin after these tokens.

    outputs: token ids of each sample; ended: which samples were finished. The rest is what the
    first delta told, and moments on the monotonic clock, which all processes share.
    """

    outputs: list[list[int]]
    ended: list[bool]
    num_cached_tokens: int = 0
    first_scheduled_s: float | None = None
    first_token_s: float | None = None


@dataclass(frozen=True)
class Logprob:
    """One candidate token, as vLLM shows it."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


TokenLogprobs = dict[int, Logprob]
"""Candidates at one position by token id; the chosen token first."""


class Delta(msgspec.Struct, array_like=True, gc=False):
    """What one step added to one sample. Text is safe to show: whole characters, no part of a
    stop string. Concatenated deltas are the non-streamed answer.

    One travels between processes for each token: without its fields' names, and unseen by the
    garbage collector, as it can be part of no cycle."""

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None  # for finish_reason "error": why
    error_kind: str | None = None  # then a class name in octavo.errors; None: EngineError
    error_param: str | None = None  # and the parameter at fault
    prompt_logprobs: list[TokenLogprobs | None] | None = None  # with a request's first delta
    num_cached_tokens: int | None = None  # prompt tokens found in the prefix cache; likewise
    metrics: RequestMetrics | None = None  # with a request's last delta
    embedding: bytes | None = None  # float32, little endian: an embedding, or a pair's label


@dataclass
class CompletionOutput:
    """One finished (or growing) sample. message: of a chat, the text cut into thinking, answer and
    tool calls."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    message: Answer | None = None


@dataclass
class RequestMetrics:
    """Seconds on the monotonic clock, None until reached; num_preemptions: how often a sample
    lost its blocks and had to be computed again."""

    arrival_s: float
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    num_preemptions: int = 0


@dataclass
class RequestOutput:
    """All samples of one request, as `LLM.generate` returns them. embedding: float32, of a request
    for one or for a score."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    embedding: bytes | None = None

"""Counters of an engine, for /metrics, benchmarks and curiosity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.engine.histogram import Histogram
from octavo.records import replace

STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
STEP_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 30),
)


class EngineLoad(NamedTuple):
    """What waits (requests and their tokens) and how many rows are taken."""

    num_waiting: int
    num_waiting_tokens: int
    num_running: int


@dataclass
class EngineStats:
    """A snapshot. Counts are since start unless they describe the present; times in seconds.

    num_free_blocks includes num_cached_blocks, whose content can still be found by prefix.
    prefix_cache_queries and prefix_cache_hits count prompt tokens.
    num_waiting counts the whole queue, num_waiting_preempted those in it that ran before.
    step_tokens and step_s: what steps computed and how long they took.
    finished counts samples by finish reason.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_preempted: int = 0
    block_size: int = 0
    num_blocks: int = 0
    num_used_blocks: int = 0
    num_free_blocks: int = 0
    num_cached_blocks: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    num_preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_steps: int = 0
    num_step_errors: int = 0
    last_step_s: float = 0.0
    last_step_tokens: int = 0
    step_tokens: Histogram = field(default_factory=lambda: Histogram(STEP_TOKENS))
    step_s: Histogram = field(default_factory=lambda: Histogram(STEP_S))
    finished: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0)
    )

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, 0 to 1."""
        return self.num_used_blocks / self.num_blocks if self.num_blocks else 0.0

    @property
    def prefix_cache_hit_rate(self) -> float:
        """Share of the prompt tokens looked up that were found, 0 to 1."""
        queries = self.prefix_cache_queries
        return self.prefix_cache_hits / queries if queries else 0.0

    @property
    def prompt_tokens_cached(self) -> int:
        """Prompt tokens that did not have to be computed."""
        return self.prefix_cache_hits

    @property
    def waiting_by_reason(self) -> dict[str, int]:
        """The queue by what put a sequence there: no room yet, or blocks taken away."""
        preempted = self.num_waiting_preempted
        return {"capacity": self.num_waiting - preempted, "preempted": preempted}

    def note_step(self, duration_s: float, num_tokens: int) -> None:
        """Count a step that ran."""
        self.num_steps += 1
        self.last_step_s, self.last_step_tokens = duration_s, num_tokens
        self.step_tokens.observe(num_tokens)
        self.step_s.observe(duration_s)

    def snapshot(self, **present: int) -> EngineStats:
        """A copy that does not change any more; `present` are fields that describe the present."""
        return replace(
            self,
            finished=dict(self.finished),
            step_tokens=self.step_tokens.copy(),
            step_s=self.step_s.copy(),
            **present,
        )

"""Counters of an engine, for /metrics, benchmarks and curiosity."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class EngineStats:
    """A snapshot. Counts are since start unless they describe the present; times in seconds.

    num_free_blocks includes num_cached_blocks, whose content can still be found by prefix.
    prefix_cache_queries and prefix_cache_hits count prompt tokens.
    finished counts samples by finish reason.
    """

    num_running: int = 0
    num_waiting: int = 0
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
    finished: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0)
    )

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, 0 to 1."""
        return self.num_used_blocks / self.num_blocks if self.num_blocks else 0.0

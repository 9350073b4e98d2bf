"""What a benchmark measures, with every number defined once. Times in seconds.

Definitions, for C requests that arrive together, each with P prompt tokens and N output tokens:

    TTFT              a request's first token minus its arrival
    inter-token       between two tokens of one request; n tokens in one step count n times
    prefill tokens/s  C * P / (the last request's first token - arrival)
    decode tokens/s   tokens that come after the last request's first token / the time they take
    output tokens/s   C * N / the whole run
    total tokens/s    C * (P + N) / the whole run
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise


@dataclass(frozen=True)
class Workload:
    """C = concurrency requests at once, of random tokens. The same seed gives the same prompts."""

    input_len: int = 512
    output_len: int = 128
    concurrency: int = 1
    seed: int = 0


@dataclass
class Run:
    """One repetition: when each request's tokens came, in seconds since all arrived."""

    workload: Workload
    token_times_s: list[list[float]] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def ttft_s(self) -> list[float]:
        """One a request."""
        return [times[0] for times in self.token_times_s]

    @property
    def inter_token_s(self) -> list[float]:
        """All gaps of all requests."""
        return [b - a for t in self.token_times_s for a, b in pairwise(t)]

    @property
    def num_output_tokens(self) -> int:
        return sum(len(times) for times in self.token_times_s)

    @property
    def prefill_tps(self) -> float:
        return self._num_input_tokens / max(self.ttft_s)

    @property
    def decode_tps(self) -> float | None:
        """None where every token came with the prefill."""
        start = max(self.ttft_s)
        after = [t for times in self.token_times_s for t in times if t > start]
        return len(after) / (max(after) - start) if after else None

    @property
    def output_tps(self) -> float:
        return self.num_output_tokens / self.wall_s

    @property
    def total_tps(self) -> float:
        return (self._num_input_tokens + self.num_output_tokens) / self.wall_s

    @property
    def _num_input_tokens(self) -> int:
        return self.workload.concurrency * self.workload.input_len


@dataclass(frozen=True)
class Summary:
    """The median of the repetitions and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """values: one a repetition, at least one."""
        return cls(statistics.median(values), min(values), max(values))

    @property
    def spread(self) -> float:
        """(high - low) / median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True)
class EngineResult:
    """All repetitions of one workload, summed up. Rates in tokens/s, latencies in seconds."""

    workload: Workload
    repetitions: int
    prefill_tps: Summary
    decode_tps: Summary | None
    output_tps: Summary
    total_tps: Summary
    ttft_p50_s: Summary
    ttft_p99_s: Summary
    inter_token_p50_s: Summary | None
    inter_token_p90_s: Summary | None
    inter_token_p99_s: Summary | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> EngineResult:
        """runs: at least one, all of one workload."""
        decode = [run.decode_tps for run in runs]
        return cls(
            workload=runs[0].workload,
            repetitions=len(runs),
            prefill_tps=Summary.of([run.prefill_tps for run in runs]),
            decode_tps=Summary.of([d for d in decode if d]) if any(decode) else None,
            output_tps=Summary.of([run.output_tps for run in runs]),
            total_tps=Summary.of([run.total_tps for run in runs]),
            ttft_p50_s=Summary.of([percentile(run.ttft_s, 50) for run in runs]),
            ttft_p99_s=Summary.of([percentile(run.ttft_s, 99) for run in runs]),
            inter_token_p50_s=_gaps(runs, 50),
            inter_token_p90_s=_gaps(runs, 90),
            inter_token_p99_s=_gaps(runs, 99),
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data for a JSON file."""
        return asdict(self)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed (nearest rank)."""
    rank = max(1, math.ceil(percent / 100 * len(values)))
    return sorted(values)[rank - 1]


def _gaps(runs: Sequence[Run], percent: float) -> Summary | None:
    gaps = [run.inter_token_s for run in runs]
    return Summary.of([percentile(g, percent) for g in gaps]) if all(gaps) else None

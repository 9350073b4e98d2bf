"""What a load test measured, with every number defined once. Times in seconds.

Of one request, by the client's clock:

    TTFT         its first text (or reasoning, or tool call) minus the moment it was sent
    inter-token  between two pieces of its stream
    TPOT         (last piece - first piece) / (output tokens - 1)
    end-to-end   last byte minus the moment it was sent

Of an open loop the moment is the one the request should have been sent at: a client that comes late
must not make the server look good. Throughput: tokens of all good answers / the whole run. Goodput:
good answers that met every bound of the SLO / the whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from octavo.bench.results import percentile
from octavo.errors import InvalidParameterError

PERCENTS = (50, 90, 99)


@dataclass
class RequestRecord:
    """One request. sent_s: from the start of the run. piece_times_s: when each piece of the answer
    came, likewise. error: why there is no good answer ("HTTP 429", "timeout", ...)."""

    sent_s: float
    piece_times_s: list[float] = field(default_factory=list)
    end_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None
    retry_after: bool = False

    @property
    def good(self) -> bool:
        """Whether there is a whole answer."""
        return self.error is None and bool(self.piece_times_s)

    @property
    def ttft_s(self) -> float:
        """Of a good request."""
        return self.piece_times_s[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        """Of a good request."""
        return self.end_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """None for an answer of one token."""
        if self.output_tokens < 2:
            return None
        return (self.piece_times_s[-1] - self.piece_times_s[0]) / (self.output_tokens - 1)

    @property
    def inter_token_s(self) -> list[float]:
        """Gaps between pieces."""
        return [b - a for a, b in pairwise(self.piece_times_s)]


@dataclass(frozen=True)
class Slo:
    """Bounds that a request must keep to count as good service; None: no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """From "ttft=0.5,tpot=0.05,e2e=10", in seconds."""
        bounds: dict[str, float] = {}
        for piece in text.split(","):
            name, _, value = piece.partition("=")
            try:
                bounds[f"{name.strip()}_s"] = float(value)
            except ValueError:
                bounds["?"] = 0.0
        if not bounds.keys() <= {"ttft_s", "tpot_s", "e2e_s"} or min(bounds.values()) <= 0:
            raise InvalidParameterError("slo", f"got {text!r}, expected ttft=0.5,tpot=0.05,e2e=10")
        return cls(**bounds)

    def met_by(self, record: RequestRecord) -> bool:
        """Whether a request kept every bound."""
        return record.good and all(
            bound is None or value is None or value <= bound
            for bound, value in (
                (self.ttft_s, record.ttft_s),
                (self.tpot_s, record.tpot_s),
                (self.e2e_s, record.e2e_s),
            )
        )

    def __str__(self) -> str:
        names = {"TTFT": self.ttft_s, "TPOT": self.tpot_s, "end-to-end": self.e2e_s}
        return ", ".join(f"{name} <= {v:g} s" for name, v in names.items() if v is not None)


@dataclass(frozen=True)
class Distribution:
    """mean, then percentiles by nearest rank."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution | None:
        """None of nothing."""
        if not values:
            return None
        return cls(sum(values) / len(values), *(percentile(values, p) for p in PERCENTS))


@dataclass(frozen=True)
class LoadResult:
    """A whole run. load and prompts: what was asked, in words. cost_per_million: of output tokens,
    in the currency of the hourly price; None without price."""

    load: str
    prompts: str
    wall_s: float
    num_good: int
    errors: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    output_tps: float
    total_tps: float
    requests_per_s: float
    ttft: Distribution | None
    tpot: Distribution | None
    inter_token: Distribution | None
    e2e: Distribution | None
    slo: str | None
    slo_met: int | None
    goodput_per_s: float | None
    cost_per_million: float | None
    records: tuple[RequestRecord, ...] = field(repr=False, default=())

    @classmethod
    def of(
        cls,
        records: Sequence[RequestRecord],
        wall_s: float,
        *,
        load: str = "",
        prompts: str = "",
        slo: Slo | None = None,
        cost_per_hour: float | None = None,
    ) -> LoadResult:
        """records: at least one."""
        good = [record for record in records if record.good]
        output = sum(record.output_tokens for record in good)
        prompt = sum(record.prompt_tokens for record in good)
        met = None if slo is None else sum(map(slo.met_by, good))
        return cls(
            load=load,
            prompts=prompts,
            wall_s=wall_s,
            num_good=len(good),
            errors=dict(Counter(r.error or "empty answer" for r in records if not r.good)),
            prompt_tokens=prompt,
            cached_tokens=sum(record.cached_tokens for record in good),
            output_tokens=output,
            output_tps=output / wall_s,
            total_tps=(prompt + output) / wall_s,
            requests_per_s=len(good) / wall_s,
            ttft=Distribution.of([record.ttft_s for record in good]),
            tpot=Distribution.of([t for r in good if (t := r.tpot_s) is not None]),
            inter_token=Distribution.of([gap for r in good for gap in r.inter_token_s]),
            e2e=Distribution.of([record.e2e_s for record in good]),
            slo=None if slo is None else str(slo),
            slo_met=met,
            goodput_per_s=None if met is None else met / wall_s,
            cost_per_million=_cost(cost_per_hour, output / wall_s),
            records=tuple(records),
        )

    def as_dict(self, with_records: bool = False) -> dict[str, Any]:
        """Plain data for a JSON file."""
        found = asdict(self)
        if not with_records:
            del found["records"]
        return found


def _cost(per_hour: float | None, tokens_per_s: float) -> float | None:
    if per_hour is None or tokens_per_s == 0:
        return None
    return per_hour / (tokens_per_s * 3600) * 1e6

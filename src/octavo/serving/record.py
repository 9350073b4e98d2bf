"""What is known of one HTTP request while it runs: for its log line, its span, and its caller.

Handlers need not pass it on: it is the current one of their task and of the tasks they start.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.serving.request_timer import Timings

MAX_KEPT = 256  # engine requests of one HTTP request that are remembered

_current: ContextVar[RequestRecord | None] = ContextVar("octavo_request", default=None)


@dataclass
class RequestRecord:
    """request_id: the client's X-Request-Id or one made here. tenant: the name of the API key.
    model: as asked for. trace_id: of the trace that it is part of, if there is one. client_gone:
    before the answer was whole. asked_for_timings: by the caller; wants_timings: by the caller or
    the server's options. shortcut_bytes: of the answer that passed no layer."""

    request_id: str
    method: str = ""
    path: str = ""
    tenant: str = ""
    model: str = ""
    trace_id: str = ""
    wants_timings: bool = False
    asked_for_timings: bool = False
    began_s: float = field(default_factory=time.monotonic)
    runs: list[Timings] = field(default_factory=list)
    client_gone: bool = False
    shortcut_bytes: int = 0
    over: bool = False

    def add(self, run: Timings) -> None:
        """An engine request of this HTTP request has ended. Those that outlive it do not count."""
        if not self.over and len(self.runs) < MAX_KEPT:
            self.runs.append(run)

    def ask_for_timings(self) -> None:
        """The caller wants to see timings."""
        self.asked_for_timings = self.wants_timings = True

    def timings(self) -> dict[str, float | int | None] | None:
        """What the caller sees who asked for timings, in vLLM's names; None before the end."""
        if not self.runs:
            return None
        tokens = sum(run.output_tokens for run in self.runs)
        firsts = [r.began_s + r.first_token_s for r in self.runs if r.first_token_s is not None]
        ends = [run.ended_s for run in self.runs]
        generation_s = max(ends) - min(firsts) if firsts else None
        lead = self.runs[0]
        return {
            "time_to_first_token_ms": _ms(min(firsts) - lead.began_s if firsts else None),
            "queue_time_ms": _ms(lead.queue_s),
            "prefill_time_ms": _ms(lead.prefill_s),
            "generation_time_ms": _ms(generation_s),
            "mean_itl_ms": _ms(lead.mean_itl_s),
            "tokens_per_second": round(tokens / generation_s, 2) if generation_s else None,
            "num_preemptions": sum(run.num_preemptions for run in self.runs),
        }

    def fields(self) -> dict[str, Any]:
        """What the log line says of the engine's part; nothing that a prompt or an answer says."""
        if not self.runs:
            return {}
        lead = self.runs[0]
        shown = {
            "engine_request_id": lead.request_id,
            "num_engine_requests": len(self.runs),
            "prompt_tokens": sum(run.prompt_tokens for run in self.runs),
            "cached_tokens": sum(run.cached_tokens or 0 for run in self.runs),
            "output_tokens": sum(run.output_tokens for run in self.runs),
            "finish_reasons": [reason for run in self.runs for reason in run.finish_reasons],
            "queue_s": _rounded(lead.queue_s),
            "prefill_s": _rounded(lead.prefill_s),
            "ttft_s": _rounded(lead.first_token_s),
            "decode_s": _rounded(lead.decode_s),
            "preemptions": sum(run.num_preemptions for run in self.runs),
        }
        return {key: value for key, value in shown.items() if value is not None}


def current_record() -> RequestRecord | None:
    """The HTTP request that this task works for; None outside of any."""
    return _current.get()


def enter(record: RequestRecord) -> None:
    """Make `record` the current one of this task."""
    _current.set(record)


def wanted_timings() -> dict[str, float | int | None] | None:
    """The current request's timings where they are wanted and the engine is done."""
    record = current_record()
    return record.timings() if record is not None and record.wants_timings else None


def add_timings(answer: dict[str, Any]) -> dict[str, Any]:
    """A whole answer, with the request's timings as "metrics" where they are wanted."""
    timings = wanted_timings()
    return answer if timings is None else {**answer, "metrics": timings}


def asked_for_timings() -> bool:
    """Whether the caller of the current request asked for timings."""
    record = current_record()
    return record is not None and record.asked_for_timings


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)

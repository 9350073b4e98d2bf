"""A batch: what is asked, where it stands, and how it is shown."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.batch import Tally

Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
WINDOW_S = 24 * 3600


@dataclass
class Batch:
    """What survives a restart. Times are seconds since 1970. output_id, error_id: ids that the
    result files will have. failures: why the whole batch failed. outcome: what the batch will be
    once its files are in place. output_lifetime_s: how long those are kept; None: for good. owner:
    the tenant."""

    id: str
    endpoint: str
    input_file_id: str
    created_at: int
    output_id: str
    error_id: str
    status: Status = "validating"
    metadata: dict[str, str] = field(default_factory=dict)
    total: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    times: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    has_output: bool = False
    has_errors: bool = False
    outcome: Status | None = None
    output_lifetime_s: int | None = None
    owner: str = ""

    @property
    def expires_at(self) -> int:
        """When what is not done by then will not be done."""
        return self.created_at + WINDOW_S

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ("failed", "completed", "expired", "cancelled")

    def enter(self, status: Status) -> None:
        """Change the status and note when."""
        self.status = status
        self.times[status] = int(time.time())

    def count(self, tally: Tally) -> None:
        """Take over what has been done."""
        self.completed, self.failed = tally.completed, tally.failed
        self.input_tokens, self.output_tokens = tally.input_tokens, tally.output_tokens
        self.cached_tokens = tally.cached_tokens

    def shown(self) -> dict[str, Any]:
        """OpenAI's batch object."""
        names = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling")
        times = {f"{name}_at": self.times.get(name) for name in (*names, "cancelled")}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": self.failures} if self.failures else None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output_id if self.has_output else None,
            "error_file_id": self.error_id if self.has_errors else None,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **times,
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "usage": {
                "input_tokens": self.input_tokens,
                "input_tokens_details": {"cached_tokens": self.cached_tokens},
                "output_tokens": self.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.input_tokens + self.output_tokens,
            },
            "metadata": self.metadata,
        }

"""When the engine process counts as hung or hopeless, and what a slow reader may hold."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import InvalidParameterError


@dataclass(frozen=True)
class Supervision:
    """Checked on construction: a bad value raises InvalidParameterError naming the field.

    hang_timeout_s: an engine that has work, finishes no step and uses no CPU for so long is killed
    and replaced; one that computes gets five times as long. Loading is not timed. max_restarts:
    crashes in a row, each within a minute of being ready, before the engine is given up.
    max_request_crashes: crashes in the steps of one request before that request is given up.
    max_stream_backlog: bytes of an answer that may wait for their reader.
    """

    hang_timeout_s: float = 60.0
    max_restarts: int = 5
    max_request_crashes: int = 3
    max_stream_backlog: int = 4 * 2**20

    def __post_init__(self) -> None:
        for name, least in (
            ("hang_timeout_s", 0.1),
            ("max_restarts", 0),
            ("max_request_crashes", 1),
            ("max_stream_backlog", 1),
        ):
            value = getattr(self, name)
            if not value >= least:
                raise InvalidParameterError(name, f"got {value!r}, expected at least {least:g}")

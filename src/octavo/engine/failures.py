"""Errors of one request, as a Delta carries them."""

from __future__ import annotations

from octavo import errors
from octavo.engine.types import Delta

QUEUED = "queued"
"""error_param of a DeadlineError that hit a request in the queue."""


def note_error(delta: Delta, error: BaseException) -> None:
    """Let a last delta say why its request failed."""
    param = getattr(error, "param", None)
    delta.error = str(error).removeprefix(f"{param}: ")
    if isinstance(error, errors.OctavoError):
        delta.error_kind, delta.error_param = type(error).__name__, param
    if isinstance(error, errors.DeadlineError) and error.queued:
        delta.error_param = QUEUED


def error_of(delta: Delta) -> errors.OctavoError:
    """What a delta with finish_reason "error" stands for; an EngineError unless it says more."""
    message = delta.error or "the request failed"
    if delta.error_kind == "InvalidParameterError":
        return errors.InvalidParameterError(delta.error_param or "request", message)
    if delta.error_kind == "DeadlineError":
        return errors.DeadlineError(message, queued=delta.error_param == QUEUED)
    kind = getattr(errors, delta.error_kind or "EngineError", errors.EngineError)
    error: errors.OctavoError = kind(message)
    return error

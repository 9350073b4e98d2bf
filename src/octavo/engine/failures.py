"""Errors of one request, as a Delta carries them."""

from __future__ import annotations

from octavo import errors
from octavo.engine.types import Delta


def note_error(delta: Delta, error: BaseException) -> None:
    """Let a last delta say why its request failed."""
    param = getattr(error, "param", None)
    delta.error = str(error).removeprefix(f"{param}: ")
    if isinstance(error, errors.OctavoError):
        delta.error_kind, delta.error_param = type(error).__name__, param


def error_of(delta: Delta) -> errors.OctavoError:
    """What a delta with finish_reason "error" stands for; an EngineError unless it says more."""
    message = delta.error or "the request failed"
    if delta.error_kind == "InvalidParameterError":
        return errors.InvalidParameterError(delta.error_param or "request", message)
    kind = getattr(errors, delta.error_kind or "EngineError", errors.EngineError)
    error: errors.OctavoError = kind(message)
    return error

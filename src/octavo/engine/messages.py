"""What the API process and the engine process say to each other: msgpack over one ZeroMQ pair.

The API process sends commands, the engine process sends events. Deltas travel once per step, all
requests together. Nothing here decides anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo import errors
from octavo.engine.options import EngineOptions
from octavo.engine.planning import EnginePlan
from octavo.engine.types import Delta, Request
from octavo.models.config import ModelConfig


class Start(msgspec.Struct, frozen=True):
    """First bytes on the child's standard input: how to make the engine.

    factory: "module:callable", a worker.Factory. heart: file descriptor of the Heart.
    """

    factory: str
    options: dict[str, Any]
    heart: int


class Add(msgspec.Struct, tag=True, array_like=True):
    """Queue a request; the sender has seen to it that the queue has room. number: what the Heart
    shows for it."""

    number: int
    request: Request


class Abort(msgspec.Struct, tag=True, array_like=True):
    """Forget a request and free its blocks before the next step. Unknown ids are ignored."""

    request_id: str


class EndSample(msgspec.Struct, tag=True, array_like=True):
    """Nobody wants more of one sample. Unknown ones are ignored."""

    request_id: str
    index: int


class GetStats(msgspec.Struct, tag=True, array_like=True):
    """Answered by Stats with the same number, between two steps."""

    number: int


class LoadAdapter(msgspec.Struct, tag=True, array_like=True):
    """Load an adapter between two steps, or with path None unload it. Answered by AdapterDone."""

    number: int
    name: str
    path: str | None


class Shutdown(msgspec.Struct, tag=True, array_like=True):
    """Stop at once and exit."""


Command = Add | Abort | EndSample | GetStats | LoadAdapter | Shutdown


class Progress(msgspec.Struct, tag=True, array_like=True):
    """What the engine is waiting for while it starts, for people."""

    text: str


class Located(msgspec.Struct, tag=True, array_like=True):
    """The model's file or folder is on this machine at `path`."""

    path: str


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The engine takes requests. plan: the memory report, for people. task: what it does. sigmoid:
    whether its scores are the sigmoid of what it gives. prompts, default_prompt: its options."""

    vocab_size: int
    max_model_len: int
    plan: str
    task: str = "generate"
    sigmoid: bool = True
    prompts: dict[str, str] = {}
    default_prompt: str | None = None


def ready(config: ModelConfig, options: EngineOptions, plan: EnginePlan) -> Ready:
    """What an engine made of these says when it is ready."""
    encoder = config.encoder
    sigmoid = encoder is None or encoder.sigmoid
    return Ready(
        config.vocab_size,
        plan.max_model_len,
        str(plan),
        "generate" if options.task == "auto" else options.task,
        sigmoid,
        options.prompts or {},
        options.default_prompt,
    )


class Deltas(msgspec.Struct, tag=True, array_like=True):
    """What one step added."""

    deltas: list[Delta]


class Refused(msgspec.Struct, tag=True, array_like=True):
    """A request was not queued, or was dropped whole. kind: a class name in octavo.errors."""

    request_id: str
    kind: str
    param: str | None
    message: str


class Stats(msgspec.Struct, tag=True, array_like=True):
    """EngineStats as a mapping of its fields."""

    number: int
    stats: dict[str, Any]


class AdapterDone(msgspec.Struct, tag=True, array_like=True):
    """What became of LoadAdapter; error: as `describe_error` has it, None if all went well."""

    number: int
    error: tuple[str, str | None, str] | None


class Failed(msgspec.Struct, tag=True, array_like=True):
    """The engine cannot start or go on; the process exits after this."""

    kind: str
    message: str


Event = Progress | Located | Ready | Deltas | Refused | Stats | AdapterDone | Failed


def describe_error(error: Exception) -> tuple[str, str | None, str]:
    """(kind, param, message) of an error, to be rebuilt by `rebuild_error`."""
    if not isinstance(error, errors.OctavoError):
        return "EngineError", None, f"engine: {type(error).__name__}: {error}"
    param = getattr(error, "param", None)
    if isinstance(error, errors.DeadlineError):
        param = "queued" if error.queued else None
    message = str(error)
    return type(error).__name__, param, message.removeprefix(f"{param}: ")


def rebuild_error(kind: str, param: str | None, message: str) -> errors.OctavoError:
    """The error that `describe_error` described; an EngineError if its kind is unknown."""
    found = getattr(errors, kind, errors.EngineError)
    if found is errors.InvalidParameterError:
        return errors.InvalidParameterError(param or "request", message)
    if found is errors.DeadlineError:
        return errors.DeadlineError(message, queued=param == "queued")
    known = isinstance(found, type) and issubclass(found, errors.OctavoError)
    result: errors.OctavoError = found(message) if known else errors.EngineError(message)
    return result

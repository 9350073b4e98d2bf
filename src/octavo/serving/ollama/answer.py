"""What answers look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec


class Error(msgspec.Struct, rename={"message": "error"}):
    """An error, as an answer or as the last line of a stream."""

    message: str


class CalledFunction(msgspec.Struct):
    """A function that the model calls."""

    name: str
    arguments: dict[str, Any]
    index: int = 0


class ToolCall(msgspec.Struct):
    """A call."""

    function: CalledFunction
    id: str = ""


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """An answer, or a piece of one."""

    role: str
    content: str
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class TokenLogprob(msgspec.Struct):
    """One candidate."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TokenLogprob):
    """The chosen token and the best ones."""

    top_logprobs: list[TokenLogprob]


class Piece(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What pieces of an answer share. Counts and durations (nanoseconds) come with the last."""

    model: str
    created_at: str
    done: bool
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: list[ChosenLogprob] | None = None


class Chat(Piece, kw_only=True):
    """Answer of /api/chat."""

    message: ChatMessage


class Generated(Piece, kw_only=True):
    """Answer of /api/generate."""

    response: str
    thinking: str | None = None


class Details(msgspec.Struct):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class Model(msgspec.Struct, omit_defaults=True):
    """One model; the last three fields only where it says what is loaded."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    expires_at: str | None = None
    size_vram: int | None = None
    context_length: int | None = None


class Models(msgspec.Struct):
    """Answer of /api/tags and /api/ps."""

    models: list[Model]


class Shown(msgspec.Struct):
    """Answer of /api/show."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class Status(msgspec.Struct):
    """Answer of /api/pull."""

    status: str


class Version(msgspec.Struct):
    """Answer of /api/version."""

    version: str


class Embedded(msgspec.Struct):
    """Answer of /api/embed. Durations are nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OldEmbedded(msgspec.Struct):
    """Answer of /api/embeddings."""

    embedding: list[float]

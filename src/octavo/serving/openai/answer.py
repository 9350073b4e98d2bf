"""What completions, their chunks and models look like, for the OpenAPI document. Answers may have
more fields where more was asked for."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class PromptDetails(msgspec.Struct):
    """Of the prompt's tokens."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class TopLogprob(msgspec.Struct):
    """One candidate."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TopLogprob):
    """The chosen token and the best ones."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Of a choice, or of a piece of one."""

    content: list[ChosenLogprob]
    refusal: None


class CalledFunction(msgspec.Struct):
    """arguments: a JSON object as text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """A call."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """An answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(msgspec.Struct):
    """One of n answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    stop_reason: int | str | None


class ChatCompletion(msgspec.Struct, tag_field="object", tag="chat.completion"):
    """Answer of /v1/chat/completions."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str


class ChunkChoice(msgspec.Struct, omit_defaults=True):
    """A piece of an answer."""

    index: int
    delta: dict[str, Any]
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, tag_field="object", tag="chat.completion.chunk"):
    """An event of a streamed answer of /v1/chat/completions; the last one is [DONE]."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]


class CompletionLogprobs(msgspec.Struct):
    """Lists of the same length."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    """One of the answers, or a piece of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    stop_reason: int | str | None


class Completion(msgspec.Struct, tag_field="object", tag="text_completion", omit_defaults=True):
    """Answer of /v1/completions, or an event of a streamed one; the last one is [DONE]."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class Model(msgspec.Struct, tag_field="object", tag="model"):
    """A model. An adapter has the model that it changes as its parent, and a folder as its root."""

    id: str
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int | None


class ModelList(msgspec.Struct, tag_field="object", tag="list"):
    """Answer of /v1/models."""

    data: list[Model]

"""What a response and its items look like."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class TopLogprob(msgspec.Struct):
    """One candidate."""

    token: str
    logprob: float
    bytes: list[int]


class Logprob(TopLogprob):
    """The chosen token and the best ones."""

    top_logprobs: list[TopLogprob]


class OutputText(msgspec.Struct, tag="output_text"):
    """A text."""

    text: str = ""
    annotations: list[None] = []
    logprobs: list[Logprob] = []


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    """A thought."""

    text: str = ""


class SummaryText(msgspec.Struct, tag="summary_text"):
    """A thought, where its summary was asked for."""

    text: str = ""


class MessageItem(msgspec.Struct, tag="message"):
    """A message of the model."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(msgspec.Struct, tag="reasoning", omit_defaults=True):
    """What the model thought. encrypted_content: the same for sending back, if asked for; it is
    opaque, not secret."""

    id: str
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: str | None = None


class FunctionCallItem(msgspec.Struct, tag="function_call"):
    """A call. arguments: a JSON object as text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""


OutputItem = MessageItem | ReasoningItem | FunctionCallItem


class CachedDetails(msgspec.Struct):
    """Prompt tokens that were found in the prefix cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Tokens of thoughts, part of the output."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Token counts."""

    input_tokens: int
    input_tokens_details: CachedDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ErrorBody(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class Incomplete(msgspec.Struct):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class Reasoning(msgspec.Struct):
    """As asked for."""

    effort: str | None = None
    summary: str | None = None


class Response(msgspec.Struct, tag_field="object", tag="response", kw_only=True):
    """A response. Most fields say again what was asked for."""

    id: str
    created_at: int
    model: str
    status: Status = "in_progress"
    output: list[OutputItem] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    error: ErrorBody | None = None
    incomplete_details: Incomplete | None = None
    completed_at: int | None = None
    background: bool = False
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: dict[str, Any] = msgspec.field(default_factory=dict)
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"
    user: str | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    metrics: dict[str, float | int | None] | msgspec.UnsetType = msgspec.UNSET  # for who asks


class Deleted(msgspec.Struct, tag_field="object", tag="response"):
    """Answer of DELETE."""

    id: str
    deleted: Literal[True] = True


class ItemList(msgspec.Struct, tag_field="object", tag="list"):
    """Answer of .../input_items."""

    data: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool


class TokenCount(msgspec.Struct, tag_field="object", tag="response.input_tokens"):
    """Answer of /v1/responses/input_tokens."""

    input_tokens: int

"""What a message and the events of a stream look like."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class Text(msgspec.Struct, tag="text"):
    """A text of the answer."""

    text: str = ""
    citations: None = None


class Thinking(msgspec.Struct, tag="thinking"):
    """A thought. signature: tells thoughts apart; clients send it back unchanged."""

    thinking: str = ""
    signature: str = ""


class DirectCaller(msgspec.Struct, tag="direct"):
    """The model itself made the call."""


class ToolUse(msgspec.Struct, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]
    caller: DirectCaller = msgspec.field(default_factory=DirectCaller)


ContentBlock = Text | Thinking | ToolUse


class OutputDetails(msgspec.Struct):
    """Tokens of thoughts, part of the output."""

    thinking_tokens: int = 0


class CacheCreation(msgspec.Struct):
    """Nothing is billed for being cached."""

    ephemeral_1h_input_tokens: int = 0
    ephemeral_5m_input_tokens: int = 0


class Usage(msgspec.Struct):
    """Token counts. input_tokens leaves out those that were found in the prefix cache."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation: CacheCreation = msgspec.field(default_factory=CacheCreation)
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)
    server_tool_use: None = None
    service_tier: Literal["standard"] = "standard"
    inference_geo: None = None


class DeltaUsage(msgspec.Struct):
    """Token counts of a whole stream."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)
    server_tool_use: None = None


class Message(msgspec.Struct, tag="message"):
    """A whole answer, or its head in a stream."""

    id: str
    model: str
    content: list[ContentBlock]
    usage: Usage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"
    stop_details: None = None
    container: None = None
    metrics: dict[str, float | int | None] | msgspec.UnsetType = msgspec.UNSET  # for who asks


class TextDelta(msgspec.Struct, tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    """More of a thought."""

    thinking: str


class SignatureDelta(msgspec.Struct, tag="signature_delta"):
    """The signature of a thought, at its end."""

    signature: str


class InputJsonDelta(msgspec.Struct, tag="input_json_delta"):
    """More of a call's arguments, as text of JSON."""

    partial_json: str


BlockDelta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class MessageStart(msgspec.Struct, tag="message_start"):
    """First event: the message without content."""

    message: Message


class Ping(msgspec.Struct, tag="ping"):
    """Nothing."""


class BlockStart(msgspec.Struct, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: ContentBlock


class BlockMore(msgspec.Struct, tag="content_block_delta"):
    """A block goes on."""

    index: int
    delta: BlockDelta


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    """A block is at its end."""

    index: int


class End(msgspec.Struct):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """What became known with the end."""

    delta: End
    usage: DeltaUsage


class MessageStop(msgspec.Struct, tag="message_stop"):
    """Last event. metrics: Octavo's own, for who asks."""

    metrics: dict[str, float | int | None] | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class Error(msgspec.Struct, tag="error"):
    """An error, as an answer or as the last event of a stream."""

    error: ErrorBody
    request_id: str | None = None


BlockChange = BlockStart | BlockMore | BlockStop
Event = MessageStart | Ping | BlockChange | MessageDelta | MessageStop | Error


class TokenCount(msgspec.Struct):
    """Answer of count_tokens."""

    input_tokens: int

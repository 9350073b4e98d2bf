"""Request bodies of the Anthropic protocol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from octavo.serving.body import Off, StrictModel

MAX_MESSAGES = 4096
MAX_TOOLS = 256
LEAST_BUDGET = 1024  # tokens of thinking

# They label, route or cache a request; the answer is the same without them. Prompts are always
# cached here, so that cache_control has nothing to switch on.
HARMLESS = frozenset({"cache_control", "service_tier", "user_profile_id", "workspace_id"})
IDLE: dict[str, tuple[Any, ...]] = {
    "container": (),
    "context_management": ({}, {"edits": []}),
    "diagnostics": (),
    "inference_geo": (),
    "kv_transfer_params": (),
    "mcp_servers": ([],),
    "speed": ("standard",),
    "vllm_xargs": ({},),
}


class _Block(StrictModel):
    """Blocks may say where Anthropic's cache should end, which changes no answer."""

    cache_control: dict[str, Any] | None = None


class TextBlock(_Block):
    """A text. Citations of an answer sent back are not shown to the model."""

    type: Literal["text"]
    text: str
    citations: list[dict[str, Any]] | None = None


class ThinkingBlock(_Block):
    """What the model thought in an earlier turn."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUseBlock(_Block):
    """A call the model made."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=128)
    input: dict[str, Any]
    caller: dict[str, Any] | None = None


class PlainTextSource(StrictModel):
    """A document that is text."""

    type: Literal["text"]
    media_type: Literal["text/plain"] = "text/plain"
    data: str


class ContentSource(StrictModel):
    """A document made of text blocks."""

    type: Literal["content"]
    content: str | list[TextBlock]


class NoCitations(StrictModel):
    """Citations cannot be asked for."""

    enabled: Off = False


class DocumentBlock(_Block):
    """A document as text; PDF files are refused."""

    type: Literal["document"]
    source: Annotated[PlainTextSource | ContentSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: NoCitations | None = None

    @property
    def text(self) -> str:
        """Title, context and content, one after another."""
        source = self.source
        body = source.data if isinstance(source, PlainTextSource) else plain_text(source.content)
        return "\n".join(part for part in (self.title, self.context, body) if part)


class ToolResultBlock(_Block):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(max_length=256)
    content: str | list[Annotated[TextBlock | DocumentBlock, Field(discriminator="type")]] = ""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The result as the model is to read it."""
        text = plain_text(self.content)
        return f"Error: {text}" if self.is_error else text


UserBlock = TextBlock | DocumentBlock | ToolResultBlock
AssistantBlock = TextBlock | ThinkingBlock | ToolUseBlock


class UserMessage(StrictModel):
    """A turn of the user: texts, documents, results of tools."""

    role: Literal["user"]
    content: str | list[Annotated[UserBlock, Field(discriminator="type")]]


class AssistantMessage(StrictModel):
    """A turn of the model. If it is the last message, the answer goes on from it."""

    role: Literal["assistant"]
    content: str | list[Annotated[AssistantBlock, Field(discriminator="type")]]


class SystemMessage(StrictModel):
    """Instructions in the middle of a conversation."""

    role: Literal["system"]
    content: str | list[TextBlock]


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class ToolBody(_Block):
    """A function. Anthropic's own tools (type "bash_..." and the like) are refused."""

    type: Literal["custom"] | None = None
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    eager_input_streaming: bool | None = None  # arguments always stream as they come
    defer_loading: Off | None = None
    allowed_callers: list[Literal["direct"]] | None = None


class ToolChoiceBody(StrictModel):
    """Whether tools must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Metadata(StrictModel):
    """user_id: whom the request belongs to."""

    user_id: str | None = Field(default=None, max_length=256)


class ThinkingBody(StrictModel):
    """Whether the model is to think first. display "omitted" keeps the thought from the answer."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=LEAST_BUDGET)
    display: Literal["summarized", "omitted"] | None = None


class JsonFormat(StrictModel):
    """The answer's text matches this JSON schema."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictModel):
    """effort: how much to think, for models whose template knows it."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountRequest(StrictModel):
    """Body of POST /v1/messages/count_tokens, and what a message shares with it."""

    model: str
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    system: str | list[TextBlock] | None = None
    tools: list[ToolBody] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: ToolChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessageRequest(CountRequest):
    """Body of POST /v1/messages. The last two fields are vLLM's."""

    max_tokens: int = Field(ge=1, lt=2**31)
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    metadata: Metadata | None = None
    cache_salt: str | None = Field(default=None, max_length=256)
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)


def plain_text(content: str | list[Any]) -> str:
    """Text and document blocks as one text."""
    return content if isinstance(content, str) else "\n".join(block.text for block in content)

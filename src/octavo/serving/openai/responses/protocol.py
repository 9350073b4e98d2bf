"""Request bodies of POST /v1/responses and /v1/responses/input_tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from octavo.serving.body import Off, StrictModel
from octavo.serving.openai.responses.items import Item
from octavo.serving.openai.structure import StructuredOutputs

MAX_ITEMS = 4096
MAX_TOOLS = 256
MAX_METADATA = 16
MAX_TOP_LOGPROBS = 20

# They label or route a request; the answer is the same without them. max_tool_calls counts calls of
# tools that the server itself would run, of which there are none.
HARMLESS = frozenset({"prompt_cache_options", "prompt_cache_retention", "session_id"})
IDLE: dict[str, tuple[Any, ...]] = {
    "access_programs": (),
    "background_options": (),
    "context_management": ([],),
    "conversation": (),
    "ec_transfer_params": (),
    "enable_response_messages": (False,),
    "image": (),
    "kv_transfer_params": (),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "moderation": (),
    "personality": (),
    "previous_input_messages": ([],),
    "prompt": (),
    "vllm_xargs": ({},),
    "watermarking": (False,),
}

Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
Key = Annotated[str, StringConstraints(max_length=64)]
Value = Annotated[str, StringConstraints(max_length=512)]


class FunctionTool(StrictModel):
    """A function the model may call; there are no other tools."""

    type: Literal["function"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: Off | None = None


class FunctionName(StrictModel):
    """One function."""

    type: Literal["function"]
    name: str


class AllowedTools(StrictModel):
    """Only these functions may (auto) or must (required) be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[FunctionName] = Field(min_length=1, max_length=MAX_TOOLS)


Mode = Literal["none", "auto", "required"]
Named = Annotated[FunctionName | AllowedTools, Field(discriminator="type")]


class PlainFormat(StrictModel):
    """Any text."""

    type: Literal["text"]


class ObjectFormat(StrictModel):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(StrictModel):
    """JSON that matches a schema, always strictly."""

    type: Literal["json_schema"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    json_schema: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextBody(StrictModel):
    """What the answer's text is to be like."""

    format: (
        Annotated[PlainFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None
    ) = None
    verbosity: Literal["medium"] | None = None


class ReasoningBody(StrictModel):
    """How much to think, and whether the thought is shown as a summary (of full length)."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "all_turns"] | None = None
    mode: Literal["standard"] | None = None

    @property
    def summarizes(self) -> bool:
        """Whether a summary is asked for."""
        return self.summary is not None or self.generate_summary is not None


class StreamOptions(StrictModel):
    """include_obfuscation is meaningless here."""

    include_obfuscation: bool | None = None


class CountRequest(StrictModel):
    """Body of POST /v1/responses/input_tokens, and what a response shares with it. model: the one
    that is served, unless one is named."""

    model: str | None = None
    input: str | Annotated[list[Item], Field(max_length=MAX_ITEMS)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[FunctionTool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Mode | Named | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    text: TextBody | None = None
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ResponseRequest(CountRequest):
    """Body of POST /v1/responses. The fields below `user` are vLLM's."""

    model: str
    background: bool | None = None
    include: list[Include] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_tool_calls: int | None = Field(default=None, ge=1)
    metadata: dict[Key, Value] | None = Field(default=None, max_length=MAX_METADATA)
    prompt_cache_key: str | None = Field(default=None, max_length=1024)
    safety_identifier: str | None = Field(default=None, max_length=1024)
    service_tier: str | None = Field(default=None, max_length=64)
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    top_p: float | None = None
    user: str | None = Field(default=None, max_length=256)
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputs | None = None
    include_reasoning: bool | None = None
    request_id: str | None = Field(default=None, pattern=r"^[\x21-\x7e]{1,128}$")
    include_stop_str_in_output: bool | None = None
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, max_length=256)

    @property
    def num_logprobs(self) -> int | None:
        """Candidates to show besides each token; None for no logprobs."""
        asked = "message.output_text.logprobs" in (self.include or ())
        return (self.top_logprobs or 0) if asked or self.top_logprobs else None

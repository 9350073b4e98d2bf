"""Request bodies of the Ollama protocol."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from octavo.serving.body import StrictModel
from octavo.serving.ollama.options import OptionsBody

MAX_MESSAGES = 4096
MAX_TOOLS = 256
MAX_TOP_LOGPROBS = 20

# How long a model stays loaded: here, as long as the server runs.
HARMLESS = frozenset({"keep_alive"})
IDLE: dict[str, tuple[Any, ...]] = {
    "adapter": ("",),
    "context": ([],),
    "height": (0,),
    "images": ([],),
    "shift": (False,),
    "steps": (0,),
    "template": ("",),
    "truncate": (False, True),  # nothing is ever cut: what does not fit is refused
    "width": (0,),
    "_debug_render_only": (False,),
}

Think = bool | Literal["low", "medium", "high", "max"]
Format = Literal["", "json"] | dict[str, Any]


class CallFunction(StrictModel):
    """What an earlier answer called. arguments: an object, or one as text."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    index: int | None = None
    description: str | None = None


class Call(StrictModel):
    """A call of an earlier answer."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: CallFunction


class Message(StrictModel):
    """One message. Images are refused."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = Field(default=None, max_length=0)
    tool_calls: list[Call] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class FunctionBody(StrictModel):
    """A function the model may call."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(StrictModel):
    """A tool; functions are all there are."""

    type: Literal["function"] | None = None
    function: FunctionBody


class _Generating(StrictModel):
    """What chat and generate share."""

    model: str
    stream: bool | None = None
    format: Format | None = None
    options: OptionsBody | None = None
    think: Think | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of lines; it is, unless told otherwise."""
        return self.stream is not False

    @property
    def num_logprobs(self) -> int | None:
        """Candidates to show besides each token; None for no logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None


class ChatRequest(_Generating):
    """Body of POST /api/chat. Without messages it only asks for the model to be loaded."""

    messages: list[Message] | None = Field(default=None, max_length=MAX_MESSAGES)
    tools: list[ToolBody] | None = Field(default=None, max_length=MAX_TOOLS)


class GenerateRequest(_Generating):
    """Body of POST /api/generate. raw: the prompt is not put into the chat template."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None


class ModelRequest(StrictModel):
    """Body of POST /api/show and /api/pull; name is the older name of model."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    system: str | None = None
    stream: bool | None = None
    insecure: bool | None = None


class EmbedRequest(StrictModel):
    """Body of POST /api/embed."""

    model: str
    input: str | list[str]
    truncate: bool | None = None
    dimensions: int | None = Field(default=None, ge=1)
    options: OptionsBody | None = None


class EmbeddingsRequest(StrictModel):
    """Body of POST /api/embeddings, the older form of /api/embed."""

    model: str
    prompt: str
    options: OptionsBody | None = None

"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.decoding import SamplingParams
from octavo.serving.body import StrictModel
from octavo.serving.conversation import Tool, ToolChoice
from octavo.serving.errors import invalid
from octavo.serving.openai.sampling import MAX_TOP_LOGPROBS, SamplingFields

MAX_TOOLS = 512
TOOL_NAME = r"^[A-Za-z0-9_.\-]{1,128}$"
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ContentPart(BaseModel):
    """A piece of a message; only text is understood."""

    model_config = ConfigDict(strict=True)

    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""


class CalledFunction(BaseModel):
    """What an assistant called."""

    model_config = ConfigDict(strict=True)

    name: str
    arguments: str | dict[str, Any] | None = None


class MessageCall(BaseModel):
    """A call in an assistant's message."""

    model_config = ConfigDict(strict=True)

    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction

    def plain(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function = {"name": self.function.name, "arguments": self.function.arguments or "{}"}
        return {"id": self.id or "", "type": "function", "function": function}


class Message(BaseModel):
    """One message of a conversation. Further fields of an answer sent back (refusal, audio,
    annotations) do no harm if they are empty."""

    model_config = ConfigDict(strict=True, extra="allow")
    ROLES: ClassVar[dict[str, str]] = {"developer": "system", "function": "tool"}

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    function_call: CalledFunction | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    def plain(self) -> dict[str, Any]:
        """The message for a chat template: content as one string, no empty fields."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text or part.refusal for part in content)
        calls = [call.plain() for call in self.tool_calls or ()]
        if self.function_call is not None:
            calls.append(MessageCall(id=_legacy_id(self), function=self.function_call).plain())
        shown = {
            "role": self.ROLES.get(self.role, self.role),
            "content": content or "",
            "name": self.name,
            "tool_calls": calls or None,
            "tool_call_id": _legacy_id(self) if self.role == "function" else self.tool_call_id,
            "reasoning_content": self.reasoning_content or self.reasoning,
        }
        return {key: value for key, value in shown.items() if value is not None}

    def check(self, place: int) -> None:
        """Refuse fields that would be lost, and messages without anything to say."""
        for name, value in (self.model_extra or {}).items():
            if value:
                param = f"messages[{place}].{name}"
                raise invalid(param, f"{param}: is not supported by this server")
        if self.content is None and not self.tool_calls and self.function_call is None:
            param = f"messages[{place}].content"
            raise invalid(param, f"{param}: is missing")


def _legacy_id(message: Message) -> str:
    """The id that links a function's call and its result, which are linked by name."""
    name = message.function_call.name if message.function_call else message.name
    return f"call_{name or ''}"


class Function(StrictModel):
    """What a function is. parameters: a JSON schema of an object."""

    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool:
        """As conversations have it."""
        return Tool(self.name, self.description or "", self.parameters or {}, bool(self.strict))


class ChatTool(StrictModel):
    """A tool; only functions are known."""

    type: Literal["function"]
    function: Function


class FunctionName(StrictModel):
    """A function by name."""

    name: str


class NamedChoice(StrictModel):
    """Exactly this function."""

    type: Literal["function"]
    function: FunctionName


class AllowedTools(StrictModel):
    """Some of the tools only."""

    mode: Literal["auto", "required"]
    tools: list[NamedChoice] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedChoice(StrictModel):
    """OpenAI's allowed_tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class ToolFields(SamplingFields):
    """Which functions the model may call. functions and function_call are the older names."""

    tools: list[ChatTool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | AllowedChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Function] | None = Field(default=None, max_length=MAX_TOOLS)
    function_call: Literal["none", "auto"] | FunctionName | None = None

    @property
    def is_legacy(self) -> bool:
        """Whether calls are answered as `function_call`."""
        return bool(self.functions)

    def offered(self) -> tuple[Tool, ...]:
        """The tools. Raises ApiError naming what is wrong."""
        if self.tools and self.functions:
            raise invalid("functions", "functions: cannot be combined with tools")
        given = [tool.function for tool in self.tools or ()] or self.functions or []
        field = "functions" if self.functions else "tools"
        names: set[str] = set()
        for place, function in enumerate(given):
            param = f"{field}[{place}]"
            if function.name in names:
                raise invalid(param, f"{param}: there is another function named {function.name!r}")
            names.add(function.name)
            _check_schema(function.parameters, param)
        tools = tuple(function.tool() for function in given)
        if isinstance(self.tool_choice, AllowedChoice):
            return self._allowed(self.tool_choice.allowed_tools, tools)
        return tools

    def _allowed(self, allowed: AllowedTools, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        wanted = [tool.function.name for tool in allowed.tools]
        for name in set(wanted) - {tool.name for tool in tools}:
            raise invalid("tool_choice", f"tool_choice: got {name!r}, expected the name of a tool")
        return tuple(tool for tool in tools if tool.name in wanted)

    def choice(self) -> ToolChoice:
        """Whether and what to call."""
        if self.function_call is not None and self.tool_choice is None:
            return _legacy_choice(self.function_call)
        match self.tool_choice:
            case None:
                return ToolChoice()
            case NamedChoice():
                return ToolChoice("required", self.tool_choice.function.name)
            case AllowedChoice():
                return ToolChoice(self.tool_choice.allowed_tools.mode)
        return ToolChoice(self.tool_choice)


def _legacy_choice(choice: Literal["none", "auto"] | FunctionName) -> ToolChoice:
    if isinstance(choice, FunctionName):
        return ToolChoice("required", choice.name, "function_call")
    return ToolChoice(choice)


def _check_schema(schema: dict[str, Any] | None, param: str) -> None:
    """A function's arguments are an object."""
    if schema is not None and schema.get("type", "object") != "object":
        param = f"{param}.parameters" if param.startswith("f") else f"{param}.function.parameters"
        raise invalid(param, f"{param}: must be a JSON schema whose type is object")


class ChatRequest(ToolFields):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    reasoning_effort: Effort | None = None
    thinking_token_budget: int | None = Field(default=None, ge=0, lt=2**31)
    # beyond OpenAI, as in vLLM
    include_reasoning: bool | None = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, str]] | None = None

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError or InvalidParameterError naming the field."""
        self.check_stream()
        for place, message in enumerate(self.messages):
            message.check(place)
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs", "top_logprobs: only allowed when logprobs is true")
        self.check_listed(bool(self.logprobs))
        name = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        limit = getattr(self, name)
        if limit is not None and not 1 <= limit < 2**31:
            got = str(limit)[:40]
            raise invalid(name, f"{name}: got {got}, expected an integer of at least 1")
        return self._params(
            max_tokens=limit, logprobs=(self.top_logprobs or 0) if self.logprobs else None
        )

    def continues(self) -> bool:
        """Whether the last message is the beginning of the answer."""
        if not self.continue_final_message:
            return False
        if self.add_generation_prompt:
            name = "continue_final_message"
            raise invalid(name, f"{name}: cannot be combined with add_generation_prompt")
        return True

    def echoed(self) -> str:
        """What the answer begins with besides what is generated: the assistant's last message."""
        last = self.messages[-1]
        shown = self.echo and last.role == "assistant"
        return str(last.plain()["content"]) if shown else ""

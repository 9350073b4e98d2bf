"""Request bodies. None (or absence) of a field means the default of the protocol."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.decoding import SamplingParams
from octavo.serving.errors import invalid
from octavo.serving.openai.sampling import MAX_TOP_LOGPROBS, SamplingFields

MAX_PROMPTS = 256
MAX_BEST_OF = 20


class ContentPart(BaseModel):
    """A piece of a message; only text is understood."""

    model_config = ConfigDict(strict=True)

    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""


class Message(BaseModel):
    """One message of a conversation. Further fields of an answer sent back (refusal, audio,
    annotations) do no harm if they are empty."""

    model_config = ConfigDict(strict=True, extra="allow")
    ROLES: ClassVar[dict[str, str]] = {"developer": "system"}

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, Any]:
        """The message for a chat template: content as one string, no empty fields."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text or part.refusal for part in content)
        shown = {
            "role": self.ROLES.get(self.role, self.role),
            "content": content or "",
            "name": self.name,
            "tool_calls": self.tool_calls,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning_content,
        }
        return {key: value for key, value in shown.items() if value is not None}

    def check(self, place: int) -> None:
        """Refuse fields that would be lost, and messages without anything to say."""
        for name, value in (self.model_extra or {}).items():
            if value:
                param = f"messages[{place}].{name}"
                raise invalid(param, f"{param}: is not supported by this server")
        if self.content is None and not self.tool_calls:
            param = f"messages[{place}].content"
            raise invalid(param, f"{param}: is missing")


class ChatRequest(SamplingFields):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: Literal[False] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError or InvalidParameterError naming the field."""
        self.check_stream()
        for place, message in enumerate(self.messages):
            message.check(place)
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs", "top_logprobs: only allowed when logprobs is true")
        name = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        limit = getattr(self, name)
        if limit is not None and limit < 1:
            raise invalid(name, f"{name}: got {limit}, expected an integer of at least 1")
        return self._params(
            max_tokens=limit, logprobs=(self.top_logprobs or 0) if self.logprobs else None
        )


class CompletionRequest(SamplingFields):
    """Body of POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]]
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    suffix: str | None = None
    best_of: int | None = Field(default=None, ge=1, le=MAX_BEST_OF)

    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list; never empty."""
        prompt: Any = self.prompt
        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        if not prompt:
            raise invalid("prompt", "prompt: is empty")
        if len(prompt) > MAX_PROMPTS:
            raise invalid("prompt", f"prompt: has {len(prompt)} prompts, at most {MAX_PROMPTS}")
        found: list[str | list[int]] = prompt
        return found

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError or InvalidParameterError naming the field."""
        self.check_stream()
        max_tokens = 16 if self.max_tokens is None else self.max_tokens
        if max_tokens == 0 and not self.echo:
            raise invalid("max_tokens", "max_tokens: 0 is only allowed when echo is true")
        logprobs = self.logprobs
        if self.picks_best:
            self._check_best_of()
            logprobs = logprobs or 0
        return self._params(
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=self._scores(max_tokens),
            **({"n": self.best_of} if self.picks_best else {}),
        )

    @property
    def picks_best(self) -> bool:
        """Whether more samples are drawn than shown."""
        return (self.best_of or 1) > (self.n or 1)

    def _check_best_of(self) -> None:
        if self.streams:
            raise invalid("best_of", "best_of: not allowed when stream is true")

    def _scores(self, max_tokens: int) -> int | None:
        """How many candidates of each prompt token are wanted; None for no scores."""
        asked = [] if self.prompt_logprobs is None else [self.prompt_logprobs]
        if self.echo and (self.logprobs is not None or max_tokens == 0):
            asked.append(self.logprobs or 0)
        return max(asked, default=None)

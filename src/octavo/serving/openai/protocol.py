"""Request bodies. None (or absence) of a field means the default of the protocol."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.decoding import SamplingParams
from octavo.errors import InvalidParameterError
from octavo.serving.body import StrictModel
from octavo.serving.errors import invalid
from octavo.serving.openai.structure import StructureFields

MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 256

_PLAIN = (  # fields that go to SamplingParams as they are
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens"),
    *("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"),
)


class StreamOptions(StrictModel):
    """include_usage: one more chunk with the token counts. include_obfuscation is meaningless."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(StructureFields):
    """What both kinds of completion share."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # beyond OpenAI, as in vLLM
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, max_length=256)
    return_metrics: bool | None = None  # Octavo's own: the request's timings with the answer

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of events."""
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def check_stream_options(self) -> None:
        """OpenAI refuses stream_options without stream."""
        if self.stream_options is not None and not self.streams:
            raise invalid("stream_options", "stream_options: only allowed when stream is true")

    def _params(self, **more: Any) -> SamplingParams:
        given = {name: getattr(self, name) for name in _PLAIN if getattr(self, name) is not None}
        if self.logit_bias:
            given["logit_bias"] = {token_id(k): v for k, v in self.logit_bias.items()}
        given["grammar"] = self.grammar()
        return SamplingParams(**{**given, **more})


def token_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise InvalidParameterError("logit_bias", f"got the key {text[:20]!r}, expected token ids")
    return int(text)


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
        self.check_stream_options()
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

    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts as a list; never empty."""
        prompt: Any = self.prompt
        if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        if not prompt:
            raise invalid("prompt", "prompt: is empty")
        if len(prompt) > MAX_PROMPTS:
            raise invalid("prompt", f"prompt: has {len(prompt)} prompts, at most {MAX_PROMPTS}")
        found: list[str] | list[list[int]] = prompt
        return found

    def sampling_params(self) -> SamplingParams:
        """Raises ApiError or InvalidParameterError naming the field."""
        self.check_stream_options()
        max_tokens = 16 if self.max_tokens is None else self.max_tokens
        if max_tokens == 0 and not self.echo:
            raise invalid("max_tokens", "max_tokens: 0 is only allowed when echo is true")
        scores = self.logprobs if self.logprobs is not None else (0 if max_tokens == 0 else None)
        return self._params(
            max_tokens=max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=scores if self.echo else None,
        )

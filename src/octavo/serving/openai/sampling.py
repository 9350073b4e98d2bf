"""Sampling fields that both kinds of completion share; beyond OpenAI's they are vLLM's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from octavo.decoding import RepetitionDetection, SamplingParams
from octavo.errors import InvalidParameterError
from octavo.serving.body import StrictModel
from octavo.serving.errors import invalid
from octavo.serving.openai.structure import StructureFields
from octavo.serving.prompts import PromptOptions
from octavo.serving.terms import MAX_DEADLINE_S

MAX_TOP_LOGPROBS = 20

_PLAIN = (  # fields that go to SamplingParams as they are
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens"),
    *("ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "bad_words"),
    *("allowed_token_ids", "spaces_between_special_tokens", "prompt_logprobs"),
    "logprob_token_ids",
)


class StreamOptions(StrictModel):
    """include_usage: one more chunk with the token counts. continuous_usage_stats: the counts so
    far with every chunk. include_obfuscation is meaningless."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class RepetitionFields(StrictModel):
    """vLLM's repetition_detection; max_pattern_size 0 switches it off."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def detection(self) -> RepetitionDetection | None:
        """Raises InvalidParameterError."""
        if self.max_pattern_size == 0:
            return None
        return RepetitionDetection(
            self.max_pattern_size, self.min_pattern_size or 1, self.min_count
        )


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
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    repetition_detection: RepetitionFields | None = None
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    logprob_token_ids: list[int] | None = None
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1, lt=2**31)
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    request_id: str | None = Field(default=None, pattern=r"^[\x21-\x7e]{1,128}$")
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, max_length=256)
    # Octavo's own; the deadlines (seconds) are read and taken out by `terms`
    deadline: float | None = Field(default=None, gt=0, le=MAX_DEADLINE_S)
    ttft_deadline: float | None = Field(default=None, gt=0, le=MAX_DEADLINE_S)
    lora: str | None = Field(default=None, max_length=128)  # likewise: the name of an adapter
    return_metrics: bool | None = None  # Octavo's own: the request's timings with the answer

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of events."""
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        """Whether every chunk of a stream has the token counts so far."""
        return self.wants_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )

    def check_stream(self) -> None:
        """OpenAI refuses stream_options without stream, vLLM prompt_logprobs with it."""
        if self.stream_options is not None and not self.streams:
            raise invalid("stream_options", "stream_options: only allowed when stream is true")
        if self.prompt_logprobs is not None and self.streams:
            raise invalid("prompt_logprobs", "prompt_logprobs: not allowed when stream is true")

    def check_listed(self, has_logprobs: bool) -> None:
        """Refuse logprob_token_ids that would not be shown."""
        if self.logprob_token_ids and not has_logprobs:
            message = "logprob_token_ids: only allowed with logprobs"
            raise invalid("logprob_token_ids", message)

    def prompt_options(self, add_special_tokens: bool) -> PromptOptions:
        """How the prompt becomes token ids. add_special_tokens: unless the body says otherwise."""
        given = self.add_special_tokens
        return PromptOptions(
            add_special_tokens if given is None else given,
            self.truncate_prompt_tokens,
            self.truncation_side or "left",
        )

    def _params(self, **more: Any) -> SamplingParams:
        given = {name: getattr(self, name) for name in _PLAIN if getattr(self, name) is not None}
        if self.logit_bias:
            given["logit_bias"] = {token_id(k): v for k, v in self.logit_bias.items()}
        if self.repetition_detection is not None:
            given["repetition_detection"] = self.repetition_detection.detection()
        given["grammar"] = self.grammar()
        return SamplingParams(**{**given, **more})


def token_id(text: str) -> int:
    """The token id that a key of logit_bias stands for."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise InvalidParameterError("logit_bias", f"got the key {text[:20]!r}, expected token ids")
    return int(text)

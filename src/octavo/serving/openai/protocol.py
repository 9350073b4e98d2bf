"""Request bodies. None (or absence) of a field means the default of the protocol."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from octavo.decoding import SamplingParams
from octavo.serving.errors import invalid
from octavo.serving.openai.sampling import MAX_TOP_LOGPROBS, SamplingFields

MAX_PROMPTS = 256
MAX_BEST_OF = 20


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
        self.check_listed(logprobs is not None)
        if self.echo and self.logprob_token_ids:
            message = "logprob_token_ids: not together with echo, whose tokens have others"
            raise invalid("logprob_token_ids", message)
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

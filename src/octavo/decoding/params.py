"""SamplingParams: how one request wants its tokens chosen. Field names are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SamplingParams:
    """Validated on construction; a bad value raises InvalidParameterError naming the field.

    max_tokens: None means as many as the context holds; 0 is allowed only to score a prompt.
    temperature 0 is greedy. top_k 0 or -1 keeps all. top_p in (0, 1]; min_p in [0, 1].
    logprobs: None for none, n for the chosen token plus the n best (n may be 0).
    prompt_logprobs: the same for the prompt's tokens.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    detokenize: bool = True

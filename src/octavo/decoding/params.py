"""SamplingParams: how one request wants its tokens chosen. Field names are vLLM's."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from octavo.decoding.grammar import Grammar
from octavo.decoding.repetition import RepetitionDetection
from octavo.decoding.thinking import ThinkingBudget
from octavo.errors import InvalidParameterError

MAX_SAMPLES = 128
MAX_LOGPROBS = 1024
MAX_STOPS = 64
MAX_STOP_LENGTH = 1024  # characters
MAX_BIASES = 4096
MAX_STOP_TOKEN_IDS = 1024
MAX_ALLOWED_TOKEN_IDS = 65536
MAX_BAD_WORDS = 256
MAX_BAD_WORD_LENGTH = 1024  # characters
MAX_LOGPROB_TOKEN_IDS = 1024
MAX_TOKEN_ID = 2**31 - 1

# Inclusive ranges. A float must be finite besides; top_p and repetition_penalty exclude 0.
INT_RANGES: dict[str, tuple[int, int]] = {
    "n": (1, MAX_SAMPLES),
    "max_tokens": (0, MAX_TOKEN_ID),
    "min_tokens": (0, MAX_TOKEN_ID),
    "top_k": (-1, MAX_TOKEN_ID),
    "seed": (-(2**63), 2**64 - 1),
    "logprobs": (0, MAX_LOGPROBS),
    "prompt_logprobs": (0, MAX_LOGPROBS),
}
FLOAT_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 1e6),
    "top_p": (1e-30, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, 1e6),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
OPTIONAL = frozenset({"max_tokens", "seed", "logprobs", "prompt_logprobs"})


@dataclass(frozen=True)
class SamplingParams:
    """Validated on construction; a bad value raises InvalidParameterError naming the field.

    max_tokens: None means as many as the context holds; 0 is allowed only to score a prompt
    (with prompt_logprobs).
    temperature 0 is greedy. top_k 0 or -1 keeps all. top_p in (0, 1]; min_p in [0, 1].
    seed: any 64-bit integer; None draws one per request.
    logprobs: None for none, n for the chosen token plus the n best (n may be 0).
    prompt_logprobs: the same for the prompt's tokens.
    logprob_token_ids: with logprobs, those of these tokens in place of the best.
    stop: one string, or a list or tuple of them; kept as a tuple.
    logit_bias: token id to a value in [-100, 100].
    shown_special_ids: special tokens that are shown although the others are skipped.
    grammar: what the text must match; end-of-sequence is allowed only where the match is complete.
    allowed_token_ids: nothing else is drawn, end-of-sequence included. bad_words: token sequences
    that do not occur in the output. repetition_detection: ends an answer that goes in circles.
    thinking_budget: ends thinking that takes too long.
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
    logprob_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    shown_special_ids: tuple[int, ...] = ()
    detokenize: bool = True
    grammar: Grammar | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    repetition_detection: RepetitionDetection | None = None
    thinking_budget: ThinkingBudget | None = None
    spaces_between_special_tokens: bool = True

    def __post_init__(self) -> None:
        for name, (low, high) in INT_RANGES.items():
            self._set(name, _integer(name, getattr(self, name), low, high))
        for name, (least, most) in FLOAT_RANGES.items():
            self._set(name, _number(name, getattr(self, name), least, most))
        self._set("logit_bias", _biases(self.logit_bias))
        self._set("stop", _texts("stop", self.stop, MAX_STOPS, MAX_STOP_LENGTH))
        words = _texts("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
        self._set("bad_words", words)
        for name in ("stop_token_ids", "shown_special_ids"):
            self._set(name, _token_ids(name, getattr(self, name), MAX_STOP_TOKEN_IDS))
        ids = _token_ids("logprob_token_ids", self.logprob_token_ids, MAX_LOGPROB_TOKEN_IDS)
        self._set("logprob_token_ids", tuple(dict.fromkeys(ids)))
        if self.allowed_token_ids is not None:
            allowed = _token_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
            self._set("allowed_token_ids", allowed)
        for flag in fields(self):
            if flag.type == "bool" and not isinstance(getattr(self, flag.name), bool):
                raise _bad(flag.name, getattr(self, flag.name), "true or false")
        self._check_together()

    @property
    def num_top(self) -> int:
        """How many of the likeliest tokens are wanted with the one drawn; -1: no logprobs."""
        if self.logprobs is None:
            return -1
        return 0 if self.logprob_token_ids else self.logprobs

    def check_vocab(self, vocab_size: int) -> None:
        """Raise InvalidParameterError if a token id named here is not in the vocabulary."""
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            for token in getattr(self, name) or ():
                if token >= vocab_size:
                    raise _bad(name, token, f"token ids below {vocab_size}")
        budget = self.thinking_budget
        if budget is not None and max(*budget.begin, *budget.end) >= vocab_size:
            raise _bad("thinking_budget", budget, f"token ids below {vocab_size}")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameterError(
                "min_tokens", f"is {self.min_tokens}, more than max_tokens ({self.max_tokens})"
            )
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise InvalidParameterError(
                "max_tokens", "is 0, which is allowed only together with prompt_logprobs"
            )
        if self.logprob_token_ids and self.logprobs is None:
            raise InvalidParameterError("logprob_token_ids", "needs logprobs")
        if self.stop and not self.detokenize:
            raise InvalidParameterError("stop", "needs detokenize to be true")
        if self.allowed_token_ids == ():
            raise InvalidParameterError("allowed_token_ids", "is empty; no token could be drawn")
        if not self.spaces_between_special_tokens:
            raise InvalidParameterError(
                "spaces_between_special_tokens", "false is not supported by this engine"
            )
        self._check_types()

    def _check_types(self) -> None:
        for name, kind in (
            ("grammar", Grammar),
            ("repetition_detection", RepetitionDetection),
            ("thinking_budget", ThinkingBudget),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise _bad(name, value, f"a {kind.__name__}")


def _bad(name: str, got: object, expected: str) -> InvalidParameterError:
    shown = repr(got)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidParameterError(name, f"got {shown}, expected {expected}")


def _integer(name: str, value: Any, low: int, high: int) -> int | None:
    if value is None and name in OPTIONAL:
        return None
    expected = f"an integer from {low} to {high}"
    if isinstance(value, bool):
        raise _bad(name, value, expected)
    try:
        number = operator.index(value)
    except TypeError:
        raise _bad(name, value, expected) from None
    if not low <= number <= high:
        raise _bad(name, value, expected)
    return number


def _number(name: str, value: Any, low: float, high: float) -> float:
    expected = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool | str | bytes):
        raise _bad(name, value, expected)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _bad(name, value, expected) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise _bad(name, value, expected)
    return number


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _bad("logit_bias", value, "a mapping of token ids to numbers")
    if len(value) > MAX_BIASES:
        raise InvalidParameterError(
            "logit_bias", f"has {len(value)} entries, at most {MAX_BIASES} are allowed"
        )
    result: dict[int, float] = {}
    for key, bias in value.items():
        token = _integer("logit_bias", key, 0, MAX_TOKEN_ID)
        result[token or 0] = _number("logit_bias", bias, -100.0, 100.0)
    return result


def _texts(name: str, value: Any, most: int, longest: int) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(s, str) for s in value):
        raise _bad(name, value, "a string or a list of strings")
    if len(value) > most:
        raise InvalidParameterError(name, f"has {len(value)} strings, at most {most}")
    if not all(0 < len(s) <= longest for s in value):
        raise InvalidParameterError(name, f"each string must have from 1 to {longest} characters")
    return tuple(value)


def _token_ids(name: str, value: Any, most: int) -> tuple[int, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _bad(name, value, "a list of token ids")
    ids = tuple(_integer(name, v, 0, MAX_TOKEN_ID) or 0 for v in value)
    if len(ids) > most:
        raise InvalidParameterError(name, f"has {len(ids)} ids, at most {most}")
    return ids

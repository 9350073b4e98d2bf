"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from octavo.engine.types import Logprob, TokenLogprobs
from octavo.tokenizer import Tokenizer

Listed = Collection[int] | None
LEAST = -9999.0  # stands for minus infinity, which JSON cannot say


def finite(logprob: float) -> float:
    """The number as JSON can carry it."""
    return max(logprob, LEAST)


class TokenTexts:
    """How tokens are written. A token that is no whole character is shown as its bytes.
    as_ids: every token is shown as "token_id:5"."""

    def __init__(self, tokenizer: Tokenizer | None, as_ids: bool = False) -> None:
        self._tokenizer, self._as_ids = tokenizer, as_ids

    def raw(self, token_id: int) -> bytes:
        """The token's bytes."""
        if self._tokenizer is None:
            return f"token_id:{token_id}".encode()
        return self._tokenizer.token_bytes(token_id)

    def shown(self, token_id: int) -> str:
        """The token as answers name it."""
        return f"token_id:{token_id}" if self._as_ids else self.text(token_id)

    def text(self, token_id: int) -> str:
        """The token as a string."""
        raw = self.raw(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def chat_logprobs(
    positions: list[TokenLogprobs], num_top: int, texts: TokenTexts, listed: Listed = None
) -> dict[str, Any]:
    """The `logprobs` object of a chat choice (or chunk). listed: tokens that are shown in place of
    the likeliest."""

    def entry(token_id: int, candidate: Logprob) -> dict[str, Any]:
        return {
            "token": texts.shown(token_id),
            "logprob": finite(candidate.logprob),
            "bytes": list(texts.raw(token_id)),
        }

    def position(candidates: TokenLogprobs) -> dict[str, Any]:
        chosen, shown = next(iter(candidates.items()))
        top = [entry(i, candidate) for i, candidate in best(candidates, num_top, listed)]
        return {**entry(chosen, shown), "top_logprobs": top}

    return {"content": [position(candidates) for candidates in positions], "refusal": None}


def completion_logprobs(
    token_ids: list[int],
    positions: list[TokenLogprobs | None],
    num_top: int,
    texts: TokenTexts,
    offset: int,
    listed: Listed = None,
) -> dict[str, Any]:
    """The `logprobs` object of a completion choice (or chunk). offset: characters of the choice's
    text before these tokens. listed: tokens that are shown in place of the likeliest. A position
    without candidates (the first of a prompt) shows null."""
    tokens = [texts.shown(token_id) for token_id in token_ids]
    offsets: list[int] = []
    logprobs: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    for token_id, token, candidates in zip(token_ids, tokens, positions, strict=True):
        offsets.append(offset)
        offset += len(texts.text(token_id))
        if candidates is None:
            logprobs.append(None)
            tops.append(None)
            continue
        chosen = candidates[token_id]
        top = {texts.shown(i): finite(c.logprob) for i, c in best(candidates, num_top, listed)}
        logprobs.append(finite(chosen.logprob))
        tops.append({**top, token: finite(chosen.logprob)})
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def best(candidates: TokenLogprobs, count: int, listed: Listed = None) -> list[tuple[int, Logprob]]:
    """The `count` most likely candidates, or those that are listed, best first."""
    ranked = sorted(candidates.items(), key=lambda item: (-item[1].logprob, item[0]))
    return [found for found in ranked if found[0] in listed] if listed else ranked[:count]


def scored(
    positions: list[TokenLogprobs | None] | None, num_top: int
) -> list[dict[str, Any] | None] | None:
    """vLLM's `prompt_logprobs`: for each token of the prompt but the first, by token id, the token
    itself and the num_top likeliest."""
    if positions is None:
        return None
    return [None if found is None else _scored(found, num_top) for found in positions]


def _scored(candidates: TokenLogprobs, num_top: int) -> dict[str, Any]:
    chosen = next(iter(candidates))
    return {
        str(token): {
            "logprob": finite(candidate.logprob),
            "rank": candidate.rank,
            "decoded_token": candidate.decoded_token,
        }
        for place, (token, candidate) in enumerate(candidates.items())
        if token == chosen or (candidate.rank or place) <= num_top
    }


def mean_logprob(positions: list[TokenLogprobs]) -> float:
    """Of the chosen tokens; 0 for none."""
    chosen = [next(iter(candidates.values())).logprob for candidates in positions]
    return sum(chosen) / len(chosen) if chosen else 0.0

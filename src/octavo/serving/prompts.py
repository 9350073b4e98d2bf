"""From a prompt's text to its token ids, as the request wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.serving.context import Serving
from octavo.serving.errors import invalid
from octavo.tokenizer import Tokenizer


@dataclass(frozen=True)
class PromptOptions:
    """truncate: keep at most so many tokens; -1 for as many as leave room for the output.
    side: where tokens are cut off."""

    add_special_tokens: bool
    truncate: int | None = None
    side: Literal["left", "right"] = "left"

    def cut(self, serving: Serving, ids: list[int], max_tokens: int | None) -> list[int]:
        """The ids that are kept."""
        limit = self.truncate
        if limit is None:
            return ids
        if limit == -1:
            limit = _room(serving, max_tokens)
        if limit == 0:
            raise invalid("truncate_prompt_tokens", "truncate_prompt_tokens: 0 leaves no prompt")
        return ids[:limit] if self.side == "right" else ids[-limit:]


RENDERED = PromptOptions(add_special_tokens=False)
"""For what a chat template has written: it puts the special tokens itself."""


def _room(serving: Serving, max_tokens: int | None) -> int:
    info = serving.client.ready_info
    return max(1, (info.max_model_len if info is not None else 1) - (max_tokens or 1))


_INFILL = (  # prefix, suffix and middle marks of model families
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)
_INFILL_ENDS = ("<|fim_pad|>", "<fim_pad>", "<|file_sep|>", "<file_sep>", "<|repo_name|>", "▁<EOT>")
"""Tokens with which such models leave the gap."""


def can_infill(tokenizer: Tokenizer) -> bool:
    """Whether the model can fill the gap between two texts."""
    return any(all(_mark(tokenizer, mark) is not None for mark in marks) for marks in _INFILL)


def infill(tokenizer: Tokenizer, prefix: str, suffix: str) -> tuple[list[int], list[int]]:
    """(prompt, stop ids) that ask a model to fill the gap between two texts.

    Raises a 400 if the model has no tokens for that.
    """
    for marks in _INFILL:
        ids = [_mark(tokenizer, mark) for mark in marks]
        if None not in ids:
            break
    else:
        raise invalid("suffix", "suffix: this model has no fill-in-the-middle tokens")
    before, gap, after = (token for token in ids if token is not None)
    stops = [_mark(tokenizer, mark) for mark in _INFILL_ENDS]
    body = [before, *_plain(tokenizer, prefix), gap, *_plain(tokenizer, suffix), after]
    return [*tokenizer.special.prefix_ids, *body], [token for token in stops if token is not None]


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)


def _mark(tokenizer: Tokenizer, text: str) -> int | None:
    """The one token that is this mark."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return ids[0] if len(ids) == 1 and tokenizer.token_bytes(ids[0]) == text.encode() else None

"""A text cut into windows, each a context of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import InvalidParameterError


@dataclass(frozen=True)
class Window:
    """ids: a whole context. Scored are the predictions after ids[first], ids[first + 1], ...: of
    the tokens ids[first + 1 :]. What comes before `first` is context only."""

    ids: list[int]
    first: int

    @property
    def targets(self) -> list[int]:
        """The tokens whose prediction is scored, at least one."""
        return self.ids[self.first + 1 :]


def windows_of(
    ids: Sequence[int],
    context: int = 512,
    *,
    skip: int | None = None,
    bos: int | None = None,
    max_tokens: int | None = None,
) -> list[Window]:
    """Windows of `context` tokens, side by side; what is left over is dropped, as llama.cpp does.

    skip: tokens of a window that are context only; None takes half of it, as llama.cpp does.
    bos: takes the place of each window's first token, where the model expects a begin token.
    max_tokens: use only the beginning of the text. A text shorter than one window is one.
    Raises InvalidParameterError where nothing would be scored.
    """
    if context < 2:
        raise InvalidParameterError("context", f"got {context}, expected at least 2 tokens")
    ids = list(ids[:max_tokens])
    context = min(context, len(ids))
    skip = context // 2 if skip is None else skip
    if not 0 <= skip < context - 1:
        raise InvalidParameterError(
            "skip", f"got {skip}, but a window of {context} tokens must score at least one"
        )
    starts = range(0, len(ids) - context + 1, context)
    return [Window(_begun(ids[start : start + context], bos), skip) for start in starts]


def _begun(ids: list[int], bos: int | None) -> list[int]:
    return ids if bos is None else [bos, *ids[1:]]

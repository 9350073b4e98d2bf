"""A bound on what a model may think before it answers."""

from __future__ import annotations

from msgspec import Struct

from octavo.errors import InvalidParameterError

MAX_MARKER = 16  # tokens
NAME = "thinking_budget"


class ThinkingBudget(Struct, frozen=True):
    """After num_tokens tokens of thinking the model is made to write `end`. begin, end: the tokens
    that stand round it. is_open: the prompt ends with `begin`, so the answer begins within. Raises
    InvalidParameterError for what cannot be."""

    num_tokens: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    is_open: bool = False

    def __post_init__(self) -> None:
        count = self.num_tokens
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise InvalidParameterError(NAME, f"got {count!r}, expected an integer from 0")
        for marker in (self.begin, self.end):
            if not 0 < len(marker) <= MAX_MARKER or any(token < 0 for token in marker):
                message = f"a marker needs from 1 to {MAX_MARKER} token ids, got {marker!r}"
                raise InvalidParameterError(NAME, message)


class Thinking:
    """How far one sample has come. Thoughts in several pieces share the budget."""

    def __init__(self, budget: ThinkingBudget) -> None:
        self._budget = budget
        self._is_open = budget.is_open
        self._seen = 0  # tokens of the marker that is awaited
        self._num_tokens = 0

    def push(self, token: int) -> None:
        """A token of the output."""
        marker = self._budget.end if self._is_open else self._budget.begin
        self._seen = _matched(marker, self._seen, token)
        self._num_tokens += self._is_open
        if self._seen == len(marker):
            self._num_tokens -= self._seen if self._is_open else 0
            self._is_open = not self._is_open
            self._seen = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of thinking so far, its markers not counted once they are whole."""
        return self._num_tokens

    @property
    def forced(self) -> int | None:
        """The token that must come next, if the budget is used up."""
        if not self._is_open or self._num_tokens - self._seen < self._budget.num_tokens:
            return None
        return self._budget.end[self._seen]


def _matched(marker: tuple[int, ...], seen: int, token: int) -> int:
    """How many tokens of the marker an output ends with that ended with `seen` of them before
    `token` came."""
    recent = (*marker[:seen], token)
    for count in range(len(recent), 0, -1):
        if recent[len(recent) - count :] == marker[:count]:
            return count
    return 0

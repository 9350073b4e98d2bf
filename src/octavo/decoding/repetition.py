"""An answer that says the same again and again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from octavo.errors import InvalidParameterError

MAX_PATTERN = 1024  # tokens
MAX_COUNT = 1024


class RepetitionDetection(Struct, frozen=True):
    """Ends an answer whose last tokens are one pattern, min_count times in a row. The pattern has
    from min_pattern_size to max_pattern_size tokens."""

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2

    def __post_init__(self) -> None:
        _check("min_pattern_size", self.min_pattern_size, 1, MAX_PATTERN)
        _check("max_pattern_size", self.max_pattern_size, self.min_pattern_size, MAX_PATTERN)
        _check("min_count", self.min_count, 2, MAX_COUNT)

    def found(self, ids: Sequence[int], start: int) -> bool:
        """Whether ids[start:] end so."""
        for size in range(self.min_pattern_size, self.max_pattern_size + 1):
            first = len(ids) - size * self.min_count
            if first < start:
                return False
            if ids[-1] == ids[-1 - size] and ids[first:-size] == ids[first + size :]:
                return True
        return False


def _check(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidParameterError(
            "repetition_detection",
            f"{name}: got {value!r}, expected an integer from {low} to {high}",
        )

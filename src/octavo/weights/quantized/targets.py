"""Which modules a compressed-tensors group means: by class, by name, or by regular expression."""

from __future__ import annotations

import re

from octavo.errors import FormatError, UnsupportedError

MAX_PATTERN = 200
MAX_REPEATS = 4
"""Patterns come from the file: their cost must be bounded."""


class Targets:
    """Names, "re:" patterns that match a name's beginning, and classes. "Linear" is every module
    that has a quantized weight."""

    def __init__(self, where: str, targets: tuple[str, ...]) -> None:
        self._names = frozenset(targets)
        self._patterns = [
            _compiled(where, one.removeprefix("re:")) for one in targets if one.startswith("re:")
        ]

    def match(self, module: str) -> bool:
        """Whether the module is meant by its name."""
        return module in self._names or any(p.match(module) for p in self._patterns)

    @property
    def every_linear(self) -> bool:
        """Whether the class of linear layers is meant."""
        return "Linear" in self._names


def _compiled(where: str, pattern: str) -> re.Pattern[str]:
    repeats = len(re.findall(r"[*+{]", pattern))
    if len(pattern) > MAX_PATTERN or repeats > MAX_REPEATS or re.search(r"\)[*+?{]", pattern):
        raise UnsupportedError(
            f"{where}: the pattern {pattern!r:.80} may take too long; expected at most"
            f" {MAX_PATTERN} characters, {MAX_REPEATS} repeats, and none of a group"
        )
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise FormatError(f"{where}: the pattern {pattern!r:.80} is wrong: {error}") from None

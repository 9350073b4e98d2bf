"""How long prompts and answers are: a number, a range, or a weighted mix of both."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from octavo.errors import InvalidParameterError

MAX_LENGTH = 1_000_000
_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?(?::(\d{1,9}(?:\.\d{1,9})?))?")


@dataclass(frozen=True)
class Lengths:
    """parts: (lowest, highest, weight); a draw picks a part by weight, then a length in it."""

    parts: tuple[tuple[int, int, float], ...]

    @classmethod
    def parse(cls, text: str, param: str) -> Lengths:
        """From "128", "64-256" or "128:0.9,2048-4096:0.1". param: the option, for the error."""
        parts = []
        for piece in text.split(","):
            match = _PART.fullmatch(piece.strip())
            low = int(match[1]) if match else 0
            high = int(match[2] or low) if match else 0
            weight = float(match[3] or 1) if match else 0.0
            if not 1 <= low <= high <= MAX_LENGTH or weight <= 0:
                raise InvalidParameterError(
                    param, f"got {text!r}, expected 128 or 64-256 or 128:0.9,2048-4096:0.1"
                )
            parts.append((low, high, weight))
        return cls(tuple(parts))

    def draw(self, random: random.Random) -> int:
        """One length."""
        weights = [weight for _, _, weight in self.parts]
        (low, high, _), *_ = random.choices(self.parts, weights)
        return random.randint(low, high)

    def __str__(self) -> str:
        total = sum(weight for _, _, weight in self.parts)
        shown = []
        for low, high, weight in self.parts:
            span = str(low) if low == high else f"{low}-{high}"
            shown.append(span if len(self.parts) == 1 else f"{span} ({weight / total:.0%})")
        return ", ".join(shown)

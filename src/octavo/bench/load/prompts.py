"""Prompts of a wanted length in words, some sharing their beginning."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octavo.bench.load.arrivals import TraceEntry
from octavo.bench.load.lengths import Lengths

# Common English words; nearly all vocabularies hold each as one token with its leading space.
_WORDS = re.findall(
    r"\w+",
    """
the of and to in is you that it he was for on are as with his they at be this have from or one had
by word but not what all were we when your can said there use an each which she do how their if
will up other about out many then them these so some her would make like him into time has look
two more write go see number no way could people my than first water been call who oil its now
find long down day did get come made may part over new sound take only little work know place year
live me back give most very after thing our just name good sentence man think say great where help
through much before line right too mean old any same tell boy follow came want show also around
form three small
""",
)


@dataclass(frozen=True)
class Prompt:
    """text or a whole conversation, and how many tokens the answer should have."""

    text: str
    output_len: int
    messages: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class PromptMix:
    """input_len and output_len: words of a prompt, tokens of an answer. Of its words the first
    shared_len are one of num_shared beginnings that many prompts have in common. count_tokens:
    if given, input_len is in tokens. The same seed gives the same prompts."""

    input_len: Lengths
    output_len: Lengths
    shared_len: int = 0
    num_shared: int = 1
    seed: int = 0
    count_tokens: Callable[[str], int] | None = None

    def prompts(self) -> Iterator[Prompt]:
        """Without end."""
        draw = random.Random(self.seed)
        shared = [self._words(draw, self.shared_len) for _ in range(self.num_shared)]
        while True:
            yield self._prompt(draw, draw.choice(shared))

    def _prompt(self, draw: random.Random, beginning: str) -> Prompt:
        length = max(1, self.input_len.draw(draw) - self.shared_len)
        own = self._words(draw, length)
        text = f"{beginning} {own}" if beginning else own
        return Prompt(text, self.output_len.draw(draw))

    def _words(self, draw: random.Random, length: int) -> str:
        words = draw.choices(_WORDS, k=length)
        if self.count_tokens is not None and words:
            words = _cut(words, length, self.count_tokens)
        return " ".join(words)

    def follow(self, entries: Iterator[TraceEntry]) -> Iterator[Prompt]:
        """A trace's prompts; where it gives lengths alone, words of that length."""
        draw = random.Random(self.seed)
        for entry in entries:
            text = entry.prompt
            if not text and not entry.messages:
                text = self._words(draw, entry.input_len or self.input_len.draw(draw))
            yield Prompt(text, entry.output_len or self.output_len.draw(draw), entry.messages)


def _cut(words: list[str], length: int, count: Callable[[str], int]) -> list[str]:
    """The longest beginning of at most `length` tokens; at least one word."""
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if count(" ".join(words[:middle])) <= length else (low, middle - 1)
        )
    return words[:low]

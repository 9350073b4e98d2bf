"""How models mark what they think before they answer."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.parsing.scan import SPACE, Markers, Scan, Steps
from octavo.parsing.stream import Output


@dataclass(frozen=True)
class ReasoningFormat:
    """begin, end: what stands round the thinking, at the start of an answer. answer: what may stand
    round the text that follows."""

    begin: str
    end: str
    answer: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that must be seen."""
        return (self.begin, self.end, *self.answer)

    def read(self, scan: Scan, output: Output) -> Steps[None]:
        """The thinking, if the answer begins with some. Blanks next to its markers are dropped."""
        scan.mark()
        yield from scan.run(SPACE)
        if not (yield from scan.literal(self.begin)):
            scan.rewind()
            return
        scan.commit()
        scan.forget()
        output.thinking = True
        yield from scan.run(SPACE)
        yield from scan.until(Markers((self.end,)), output.reasoning, trim=True)
        output.thinking = False
        yield from scan.run(SPACE)

    def opening(self, prompt: str) -> str:
        """What of the answer the prompt already holds: the begin marker, if the prompt ends with
        it."""
        return self.begin if prompt.rstrip().endswith(self.begin) else ""

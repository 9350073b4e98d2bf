"""Answers in parts: what is thought goes to stderr, what is said to stdout."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.parsing import Parser
    from octavo.tokenizer import Tokenizer

_HINTS = ("think", "reason", "channel", "tool")  # in templates of models that mark their answers
_TAIL = 32  # tokens of a prompt that tell whether it begins the thinking
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True)
class Piece:
    """More of an answer."""

    text: str
    is_thought: bool = False


class AnswerReader:
    """Cuts one answer into pieces. shown_ids: control tokens it must see. Calls of tools stay text,
    with their markers: there is nobody to answer them."""

    def __init__(self, parser: Parser | None = None, shown_ids: tuple[int, ...] = ()) -> None:
        self._parser, self.shown_ids = parser, shown_ids

    def push(self, text: str, token_ids: list[int], is_last: bool) -> list[Piece]:
        """What is certain now."""
        if self._parser is None:
            return [Piece(text)] if text else []
        from octavo.parsing import ReasoningPart, TextPart

        parts = self._parser.push(text, token_ids) if text else []
        parts = [*parts, *self._parser.finish()] if is_last else parts
        return [
            Piece(part.text, isinstance(part, ReasoningPart))
            for part in parts
            if isinstance(part, ReasoningPart | TextPart)
        ]


def reader_for(tokenizer: Tokenizer, prompt_ids: list[int]) -> AnswerReader:
    """What reads the answer to a prompt of the model's template. Models whose template knows
    neither thinking nor tools are spared the loading of the formats."""
    source = tokenizer.template_source(with_tools=False) or ""
    if not any(hint in source.lower() for hint in _HINTS):
        return AnswerReader()
    from octavo.parsing.formats import detect_reasoning, detect_tools, model_format

    format = model_format(detect_tools(source), detect_reasoning(source), tokenizer)
    prompt = tokenizer.decode(prompt_ids[-_TAIL:], skip_special_tokens=False)
    ids = (tokenizer.encode(text, add_special_tokens=False) for text in format.markers())
    shown = [found[0] for found in ids if len(found) == 1 and tokenizer.is_special(found[0])]
    return AnswerReader(format.parser(prompt), tuple(shown))


class Printer:
    """Prints one answer as it comes. quiet: not what is thought."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._thinks = quiet, False
        self._is_dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def show(self, piece: Piece) -> None:
        """Print a piece."""
        if piece.is_thought:
            if not self._quiet:
                self._think(piece.text)
            return
        self._stop_thinking()
        sys.stdout.write(piece.text)
        sys.stdout.flush()

    def end(self) -> None:
        """The answer is over, or broken off."""
        self._stop_thinking()
        sys.stdout.write("\n")
        sys.stdout.flush()

    def _think(self, text: str) -> None:
        begin = _DIM if self._is_dim and not self._thinks else ""
        self._thinks = True
        sys.stderr.write(begin + text)
        sys.stderr.flush()

    def _stop_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            sys.stderr.write((_PLAIN if self._is_dim else "") + "\n\n")
            sys.stderr.flush()

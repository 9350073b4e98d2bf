"""Answers in parts: what is thought goes to stderr, what is said to stdout, each call of a tool on
a line of its own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from octavo.parsing import AnswerFormat, Part
    from octavo.tokenizer import Tokenizer

_HINTS = ("think", "reason", "channel", "tool")  # in templates of models that mark their answers
_TAIL = 32  # tokens of a prompt that tell whether it begins the thinking
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Piece(Struct, frozen=True):
    """More of an answer: of what is said, thought, or of the arguments of a call, which begins
    with the piece that has its name."""

    text: str
    kind: Literal["text", "thought", "call"] = "text"
    name: str = ""


class AnswerReader:
    """Cuts one answer into pieces. format: None where all is text. shown_ids: control tokens it
    must see."""

    def __init__(
        self, format: AnswerFormat | None = None, prompt: str = "", shown_ids: tuple[int, ...] = ()
    ) -> None:
        self._format, self.shown_ids = format, shown_ids
        self._parser = format.parser(prompt, any_call=True) if format else None

    def push(self, text: str, token_ids: list[int], is_last: bool) -> list[Piece]:
        """What is certain now."""
        if self._parser is None:
            return [Piece(text)] if text else []
        parts = self._parser.push(text, token_ids) if text else []
        return [_piece(part) for part in [*parts, *(self._parser.finish() if is_last else ())]]

    def written(self, name: str, arguments: str) -> str:
        """A call as the model wrote it."""
        assert self._format is not None  # else there are no calls
        return self._format.written(name, arguments)


def _piece(part: Part) -> Piece:
    from octavo.parsing import ReasoningPart, TextPart

    match part:
        case TextPart(text):
            return Piece(text)
        case ReasoningPart(text):
            return Piece(text, "thought")
    return Piece(part.arguments, "call", part.name or "")


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
    return AnswerReader(format, prompt, tuple(shown))


class Printer:
    """Prints one answer as it comes. quiet: not what is thought."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._thinks = quiet, False
        self._in_call, self._on_new_line = False, True
        self._is_dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def show(self, piece: Piece) -> None:
        """Print a piece."""
        if piece.kind == "thought":
            if not self._quiet:
                self._think(piece.text)
            return
        self._stop_thinking()
        if piece.kind == "text":
            if self._in_call:
                self._new_line()
            self._say(piece.text)
            return
        if piece.name:
            self._new_line()
            self._say(f"tool call: {piece.name} ")
            self._in_call = True
        self._say(piece.text)

    def end(self) -> None:
        """The answer is over, or broken off."""
        self._stop_thinking()
        self._say("\n")

    def _new_line(self) -> None:
        self._in_call = False
        if not self._on_new_line:
            self._say("\n")

    def _say(self, text: str) -> None:
        self._on_new_line = text.endswith("\n") if text else self._on_new_line
        sys.stdout.write(text)
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

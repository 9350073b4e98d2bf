"""What an answer is made of, whatever format the model writes it in."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field


class ReasoningPart(Struct, frozen=True):
    """More of what the model thought before it answered."""

    text: str


class TextPart(Struct, frozen=True):
    """More of the answer itself."""

    text: str


class ToolCallPart(Struct, frozen=True):
    """More of a tool call. `place` counts the calls of one answer from 0. The first part of a call
    carries its id and name, and perhaps the beginning of its arguments; later parts carry only
    arguments. Concatenated, they are the arguments of the whole call: a JSON object as text."""

    place: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


Part = ReasoningPart | TextPart | ToolCallPart


class Call(Struct):
    """A whole call. arguments: a JSON object as text."""

    id: str
    name: str
    arguments: str = ""


class Answer(Struct):
    """What parts add up to."""

    reasoning: str = ""
    text: str = ""
    tool_calls: list[Call] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Append a part."""
        match part:
            case ReasoningPart(text):
                self.reasoning += text
            case TextPart(text):
                self.text += text
            case ToolCallPart(place, arguments, call_id, name):
                if place == len(self.tool_calls):
                    self.tool_calls.append(Call(call_id or "", name or ""))
                self.tool_calls[place].arguments += arguments


class Parser(Protocol):
    """Cuts the text of one sample into parts as it comes.

    How the text is split between calls makes no difference: concatenated, the parts are those of
    the whole text pushed at once. Nothing is shown that a later character could turn into
    something else (half a marker, half an escape)."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thinking, as far as is known."""
        ...

    def push(self, text: str, token_ids: list[int]) -> list[Part]:
        """Parts that are certain now. token_ids: the tokens the text came from, for formats whose
        markers are tokens."""
        ...

    def finish(self) -> list[Part]:
        """What was held back, once the text is at its end."""
        ...


class PlainParser:
    """Everything is text."""

    thinking = False

    def push(self, text: str, token_ids: list[int]) -> list[Part]:
        """The text as it is."""
        return [TextPart(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing is ever held back."""
        return []

"""The parts of an answer in blocks, one after another: a thought, a text, a tool call.

Protocols whose answers are lists of typed blocks (Anthropic's content, OpenAI's output items,
Ollama's messages) write them from here, so that a stream and a whole answer cannot differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.parsing import Part, ReasoningPart, TextPart, ToolCallPart
from octavo.serving.reply import ReplyDelta

BlockKind = Literal["reasoning", "text", "tool_call"]
BlockAction = Literal["open", "more", "close"]


@dataclass
class Block:
    """One block as far as it has come. text: of a tool call, its arguments. index: its place in the
    answer; id, name and place are a tool call's."""

    index: int
    kind: BlockKind
    text: str = ""
    id: str = ""
    name: str = ""
    place: int = -1

    def arguments(self) -> dict[str, Any]:
        """A tool call's arguments as an object; empty if the call was cut off inside them."""
        try:
            value = json.loads(self.text or "{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass
class BlockEvent:
    """A block opened, got more `text`, or closed."""

    action: BlockAction
    block: Block
    text: str = ""


@dataclass
class Blocks:
    """The blocks of one choice. Parts must come in order."""

    all: list[Block] = field(default_factory=list)
    _open: Block | None = None

    def push(self, delta: ReplyDelta) -> list[BlockEvent]:
        """What a delta does to the blocks; with the last one, what is open closes."""
        events = [event for part in delta.parts for event in self._add(part)]
        return events if delta.finish_reason is None else [*events, *self._close()]

    def _add(self, part: Part) -> Iterator[BlockEvent]:
        match part:
            case ReasoningPart(text):
                yield from self._more("reasoning", text)
            case TextPart(text):
                yield from self._more("text", text)
            case ToolCallPart(place, arguments, call_id, name):
                yield from self._more("tool_call", arguments, place, call_id, name)

    def _close(self) -> Iterator[BlockEvent]:
        if self._open is not None:
            yield BlockEvent("close", self._open)
            self._open = None

    def _more(
        self,
        kind: BlockKind,
        text: str,
        place: int = -1,
        call_id: str | None = None,
        name: str | None = None,
    ) -> Iterator[BlockEvent]:
        if self._open is None or (self._open.kind, self._open.place) != (kind, place):
            if not text and kind != "tool_call":
                return
            yield from self._close()
            self._open = Block(len(self.all), kind, "", call_id or "", name or "", place)
            self.all.append(self._open)
            yield BlockEvent("open", self._open)
        if text:
            self._open.text += text
            yield BlockEvent("more", self._open, text)

"""What has been said, and how to take it back. No engine, no terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from octavo.errors import InvalidParameterError

Message = dict[str, str]


@dataclass
class Conversation:
    """A system message and turns. `turns` alternates user, assistant, and may end with user."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def messages(self) -> list[Message]:
        """The conversation as a chat template wants it."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, *self.turns]

    def ask(self, text: str) -> None:
        """Add the user's message."""
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        """Add the model's message."""
        self.turns.append({"role": "assistant", "content": text})

    def undo(self) -> str | None:
        """Drop the last user message and its answer; returns that message, None without one."""
        while self.turns:
            last = self.turns.pop()
            if last["role"] == "user":
                return last["content"]
        return None

    def reset(self) -> None:
        """Forget the turns, keep the system message."""
        self.turns.clear()

    def save(self, path: Path) -> None:
        """Write the messages as JSON, in the shape the chat API takes."""
        text = json.dumps({"messages": self.messages()}, ensure_ascii=False, indent=2)
        try:
            path.write_text(text + "\n", encoding="utf-8", errors="replace")
        except OSError as error:
            raise InvalidParameterError("/save", str(error)) from error

    def load(self, path: Path) -> None:
        """Replace everything by a saved conversation; a bad file changes nothing."""
        try:
            messages = _checked(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidParameterError("/load", str(error)) from error
        has_system = bool(messages) and messages[0]["role"] == "system"
        self.system = messages[0]["content"] if has_system else None
        self.turns = messages[1:] if has_system else messages


def _checked(data: object) -> list[Message]:
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
        raise ValueError('expected {"messages": [{"role": ..., "content": ...}, ...]}')
    return [{"role": m["role"], "content": m["content"]} for m in messages]


def _is_message(item: object) -> bool:
    return (
        isinstance(item, dict)
        and item.get("role") in ("system", "user", "assistant")
        and isinstance(item.get("content"), str)
    )

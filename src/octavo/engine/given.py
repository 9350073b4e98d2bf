"""What callers of `LLM` give it, sorted out: prompts and conversations, one or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from octavo.errors import InvalidParameterError

Prompt: TypeAlias = str | Sequence[int]
"""A text, or token ids."""
Prompts: TypeAlias = Prompt | Mapping[str, Any] | Sequence[Prompt | Mapping[str, Any]]
"""One or several. A mapping is a prompt in vLLM's shape."""
Message: TypeAlias = Mapping[str, Any]
"""With "role" and "content", as OpenAI has them."""


def listed_prompts(prompts: Prompts) -> list[Prompt]:
    """One prompt or several, as a list: a text or a flat list of ids is one. Raises
    InvalidParameterError for what is neither."""
    if isinstance(prompts, str | Mapping):
        return [_plain(prompts)]
    if not isinstance(prompts, Iterable):
        raise InvalidParameterError("prompt", f"got {prompts!r:.80}, expected a text or token ids")
    items: list[Any] = [_plain(item) for item in prompts]
    return items if any(hasattr(item, "__len__") for item in items) or not items else [items]


def _plain(prompt: Any) -> Any:
    """What {"prompt": text} or {"prompt_token_ids": ids} holds; anything else as it is."""
    if not isinstance(prompt, Mapping):
        return prompt
    for name, kind in (("prompt", str), ("prompt_token_ids", Sequence)):
        if list(prompt) == [name] and isinstance(prompt[name], kind):
            return prompt[name]
    expected = '{"prompt": text} or {"prompt_token_ids": ids}'
    raise InvalidParameterError("prompt", f"got {dict(prompt)!r:.80}, expected {expected}")


def conversations(messages: Any) -> list[Sequence[Message]]:
    """One conversation or several, as a list of them. Raises InvalidParameterError for what is
    neither."""
    if _is_list(messages) and messages and isinstance(messages[0], Mapping):
        messages = [messages]
    if not _is_list(messages) or not all(map(_is_conversation, messages)):
        expected = "a list of messages, or a list of such lists"
        raise InvalidParameterError("messages", f"got {messages!r:.80}, expected {expected}")
    return list(messages)


def _is_conversation(talk: Any) -> bool:
    return _is_list(talk) and all(isinstance(message, Mapping) for message in talk)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

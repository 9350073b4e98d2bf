"""An engine that answers by script, so that the commands are tested without a model."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.engine.types import Delta, Request
from octavo.errors import PromptTooLongError

MAX_MODEL_LEN = 4000


@dataclass
class Plan:
    max_model_len: int

    def __str__(self) -> str:
        return "the plan"


class FakeTokenizer:
    """One token a character."""

    chat_template: str | None = "fake"

    source = ""  # of the template; what the commands look for in it

    def template_source(self, with_tools: bool) -> str:
        return self.source

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(c) for c in text]

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))

    def token_bytes(self, token_id: int) -> bytes:
        return b""

    def is_special(self, token_id: int) -> bool:
        return False

    def render_chat(self, messages: list[dict[str, str]], **kwargs: object) -> str:
        return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"


@dataclass
class FakeEngine:
    """Answers with `answer`, one character a step; the last step says why it stopped.

    interrupt_at: raise SIGINT in the step with this index, as a user's Ctrl-C would.
    """

    answer: str = "Hi there"
    interrupt_at: int | None = None
    tokenizer: FakeTokenizer | None = field(default_factory=FakeTokenizer)
    prompts: list[str] = field(default_factory=list)
    params: list[Any] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.options = SimpleNamespace(model="fake")
        self.config = SimpleNamespace(name="Fake")
        self.plan = Plan(MAX_MODEL_LEN)
        self._request: Request | None = None
        self._step = 0

    def add_request(self, request: Request) -> None:
        if len(request.prompt_ids) >= MAX_MODEL_LEN:
            raise PromptTooLongError(f"prompt of {len(request.prompt_ids)} tokens")
        self.prompts.append("".join(map(chr, request.prompt_ids)))
        self.params.append(request.params)
        self._request, self._step = request, 0

    def has_work(self) -> bool:
        return self._request is not None

    def step(self) -> list[Delta]:
        assert self._request is not None
        if self._step == self.interrupt_at:
            signal.raise_signal(signal.SIGINT)
        text = self.answer[self._step]
        self._step += 1
        done = self._step == len(self.answer)
        delta = Delta(self._request.request_id, 0, text, [ord(text)])
        if done:
            delta.finish_reason = "stop"
            self._request = None
        return [delta]

    def abort(self, request_id: str) -> None:
        if self._request is not None:
            self.aborted.append(request_id)
            self._request = None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """A scripted engine that every command opens instead of a model."""
    from octavo.cli.session import Session

    fake = FakeEngine()
    monkeypatch.setattr(Session, "open", classmethod(lambda cls, *_, **__: cls(fake)))
    return fake

"""One streamed request to a server that speaks OpenAI's protocol, and the times of its pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from octavo.bench.load.prompts import Prompt
from octavo.bench.load.results import RequestRecord
from octavo.bench.load.wire import Headers, Wire
from octavo.errors import OctavoError

MAX_LINE = 2**20
Clock = Callable[[], float]


@dataclass(frozen=True)
class Target:
    """Where requests go. url: of the server, with or without /v1. extra: fields added to every
    body. ignore_eos: ask for answers of the full length, as most open servers understand."""

    url: str
    model: str = ""
    endpoint: Literal["chat", "completions"] = "chat"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    ignore_eos: bool = True
    timeout_s: float = 600.0

    @property
    def base(self) -> str:
        """The address of the protocol's root."""
        url = self.url.rstrip("/")
        return url if url.endswith("/v1") else f"{url}/v1"

    @property
    def path(self) -> str:
        """Where answers come from."""
        return f"{self.base}/{'chat/' if self.endpoint == 'chat' else ''}completions"

    def all_headers(self) -> dict[str, str]:
        """With the API key."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {**key, **self.headers}

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The request for one answer."""
        asks: dict[str, Any]
        if self.endpoint == "chat":
            asks = {"messages": prompt.messages or [{"role": "user", "content": prompt.text}]}
        else:
            asks = {"prompt": prompt.text or "\n".join(m["content"] for m in prompt.messages)}
        length = {"max_tokens": prompt.output_len}
        if self.ignore_eos:
            length["ignore_eos"] = True
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": self.model, **asks, **length, **stream, "temperature": 0, **self.extra}


async def find_model(wire: Wire, target: Target) -> str:
    """The first model the server lists. Raises OctavoError if it lists none."""
    address = f"{target.base}/models"
    reader = _Whole()
    try:
        await wire.send("GET", address, target.all_headers(), b"", reader)
        found = msgspec.json.decode(b"".join(reader.parts))
        return str(found["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise OctavoError(
            f"bench: {address} does not list a model ({type(error).__name__}: {error});"
            " is the server up? --model names one without asking"
        ) from None


async def ask(
    wire: Wire, target: Target, prompt: Prompt, now: Clock, sent_s: float
) -> RequestRecord:
    """Send one request and read its answer to the end. Never raises: a failure is in the record."""
    record = RequestRecord(sent_s)
    headers = {"Content-Type": "application/json", **target.all_headers()}
    body = msgspec.json.encode(target.body(prompt))
    reader = _Events(record, now)
    try:
        async with asyncio.timeout(target.timeout_s):
            await wire.send("POST", target.path, headers, body, reader)
        reader.end()
    except TimeoutError:
        record.error = "timeout"
    except (OSError, ValueError) as error:
        record.error = record.error or type(error).__name__
    record.end_s = now()
    return record


class _Whole:
    """Keeps an answer."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def head(self, status: int, headers: Headers) -> None:
        """The body says what went wrong, or does not parse."""

    def data(self, data: bytes) -> None:
        """A part."""
        self.parts.append(data)


class _Events:
    """Writes into a record what a stream of events says, with the moments of its coming."""

    def __init__(self, record: RequestRecord, now: Clock) -> None:
        self._record, self._now = record, now
        self._rest = b""  # of a line whose end has not come
        self._done = self._refused = False

    def head(self, status: int, headers: Headers) -> None:
        """How it begins."""
        if status != 200:
            self._refused = True
            self._record.error = f"HTTP {status}"
            self._record.retry_after = "retry-after" in headers

    def data(self, data: bytes) -> None:
        """Some events, or parts of them."""
        if self._refused:
            return
        moment = self._now()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                self._done = True
            elif line.startswith(b"data:"):
                self._take(line[5:], moment)
        if len(self._rest) > MAX_LINE:
            self._record.error = "malformed event"
            raise ValueError("an event has no end")

    def end(self) -> None:
        """All has come."""
        record = self._record
        if not (self._done or self._refused) and record.error is None:
            record.error = "cut off"
        if record.output_tokens == 0:  # a server without usage
            record.output_tokens = len(record.piece_times_s)

    def _take(self, data: bytes, moment: float) -> None:
        """One event."""
        record = self._record
        try:
            event = _EVENT.decode(data)
        except msgspec.DecodeError:
            record.error = "malformed event"
            return
        if event.error is not None:
            record.error = "error event"
        for choice in event.choices:
            if choice.shows:
                record.piece_times_s.append(moment)
                break
        if event.usage is not None:
            record.prompt_tokens = event.usage.prompt_tokens
            record.output_tokens = event.usage.completion_tokens
            details = event.usage.prompt_tokens_details
            record.cached_tokens = (details.cached_tokens or 0) if details else 0


class _Piece(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    delta: _Piece | None = None
    text: str | None = None

    @property
    def shows(self) -> bool:
        """Whether anything of the answer is in it."""
        piece = self.delta
        if piece is None:
            return bool(self.text)
        return bool(piece.content or piece.reasoning or piece.reasoning_content or piece.tool_calls)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)

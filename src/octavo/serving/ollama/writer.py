"""Writes a Reply as Ollama does: one object, or a line of JSON for each piece."""

from __future__ import annotations

import datetime
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

from octavo.engine.types import RequestMetrics, TokenLogprobs
from octavo.serving.blocks import Block, Blocks
from octavo.serving.context import Serving
from octavo.serving.errors import ApiError
from octavo.serving.json import encode
from octavo.serving.openai.logprobs import TokenTexts, chat_logprobs
from octavo.serving.record import add_timings
from octavo.serving.reply import Reply, ReplyDelta

Kind = Literal["chat", "generate"]
NDJSON = "application/x-ndjson"


class OllamaWriter:
    """One answer. Use either `whole` or `lines`. model: as the request names it."""

    def __init__(
        self, serving: Serving, kind: Kind, model: str, num_logprobs: int | None, reply: Reply
    ) -> None:
        self._kind, self._model, self._reply = kind, model, reply
        self._num_top = num_logprobs
        self._texts = TokenTexts(serving.tokenizer)
        self._blocks = Blocks()
        self._began_s = time.monotonic()

    async def whole(self) -> dict[str, Any]:
        """The whole answer."""
        logprobs: list[TokenLogprobs] = []
        end: dict[str, Any] = {}
        async with aclosing(self._reply.deltas()) as deltas:
            async for delta in deltas:
                self._blocks.push(delta)
                logprobs += delta.raw.logprobs or []
                if delta.finish_reason is not None:
                    end = self._end(delta)
        texts = {kind: self._joined(kind) for kind in ("text", "reasoning")}
        calls = [block for block in self._blocks.all if block.kind == "tool_call"]
        piece = self._piece(texts["text"], texts["reasoning"], calls)
        return add_timings({**self._head(), **piece, **self._logprobs(logprobs), **end})

    async def lines(self) -> AsyncGenerator[bytes]:
        """The pieces as they come, a line each; a tool call comes whole. What fails before the
        first is raised; what fails later becomes a line with an error."""
        opened, last = False, None
        async with aclosing(self._reply.deltas()) as deltas:
            try:
                async for delta in deltas:
                    for shown in self._shown(delta):
                        opened = True
                        if shown["done"]:
                            last = shown
                        else:
                            yield encode(shown) + b"\n"
            except ApiError as error:
                if not opened:
                    raise
                yield encode({"error": error.message}) + b"\n"
                return
        if last is not None:  # only now its timings are known
            yield encode(add_timings(last)) + b"\n"

    def _shown(self, delta: ReplyDelta) -> list[dict[str, Any]]:
        logprobs = self._logprobs(delta.raw.logprobs or [])
        pieces = []
        for event in self._blocks.push(delta):
            match event.action, event.block.kind:
                case "more", "text":
                    pieces.append(self._piece(event.text))
                case "more", "reasoning":
                    pieces.append(self._piece("", event.text))
                case "close", "tool_call":
                    pieces.append(self._piece("", "", [event.block]))
        lines = [{**self._head(), **piece, "done": False} for piece in pieces]
        if lines:
            lines[0] |= logprobs
        if delta.finish_reason is not None:
            lines.append({**self._head(), **self._piece(""), **self._end(delta)})
        return lines

    def _joined(self, kind: str) -> str:
        return "".join(block.text for block in self._blocks.all if block.kind == kind)

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": timestamp()}

    def _piece(
        self, text: str, thinking: str = "", calls: list[Block] | None = None
    ) -> dict[str, Any]:
        thought = {"thinking": thinking} if thinking else {}
        made = {"tool_calls": [_call(block) for block in calls]} if calls else {}
        if self._kind == "generate":
            return {"response": text, **thought, **made}
        return {"message": {"role": "assistant", "content": text, **thought, **made}}

    def _logprobs(self, positions: list[TokenLogprobs]) -> dict[str, Any]:
        if self._num_top is None or not positions:
            return {}
        return {"logprobs": chat_logprobs(positions, self._num_top, self._texts)["content"]}

    def _end(self, delta: ReplyDelta) -> dict[str, Any]:
        generation = self._reply.generation
        return {
            "done": True,
            "done_reason": "length" if delta.finish_reason == "length" else "stop",
            "total_duration": _nanoseconds(time.monotonic() - self._began_s),
            "load_duration": 0,
            "prompt_eval_count": generation.num_prompt_tokens,
            "eval_count": generation.num_output_tokens,
            **_durations(delta.raw.metrics),
        }


def timestamp(seconds: float | None = None) -> str:
    """Now, or a time since 1970, as RFC 3339 in UTC."""
    zone = datetime.UTC
    moment = datetime.datetime.now(zone) if seconds is None else None
    moment = moment or datetime.datetime.fromtimestamp(seconds or 0, zone)
    return moment.isoformat().replace("+00:00", "Z")


def _call(block: Block) -> dict[str, Any]:
    function = {"index": block.place, "name": block.name, "arguments": block.arguments()}
    return {"id": block.id, "function": function}


def _durations(metrics: RequestMetrics | None) -> dict[str, int]:
    if metrics is None or metrics.first_token_s is None:
        return {"prompt_eval_duration": 0, "eval_duration": 0}
    first = metrics.first_token_s
    begin = metrics.first_scheduled_s or metrics.arrival_s
    end = metrics.finished_s or first
    return {
        "prompt_eval_duration": _nanoseconds(first - begin),
        "eval_duration": _nanoseconds(end - first),
    }


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))

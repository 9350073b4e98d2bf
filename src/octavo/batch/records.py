"""The output: OpenAI's records, one a line, and what they add up to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.batch.lines import BadLine, Item


@dataclass(frozen=True)
class Answer:
    """What an endpoint said. body: JSON."""

    status: int
    body: Any
    request_id: str | None = None


def answer_record(item: Item, answer: Answer) -> dict[str, Any]:
    """The record of a request that was run, whether it was refused or not."""
    request_id = answer.request_id or _body_id(answer.body) or _new_id("req")
    response = {"status_code": answer.status, "request_id": request_id, "body": answer.body}
    return {
        "id": _new_id("batch_req"),
        "custom_id": item.custom_id,
        "response": response,
        "error": None,
    }


def bad_line_record(line: BadLine) -> dict[str, Any]:
    """The record of a line that is no request."""
    error = {"code": line.code, "message": line.message, "param": line.param, "line": line.line}
    return {
        "id": _new_id("batch_req"),
        "custom_id": line.custom_id,
        "response": None,
        "error": error,
    }


def is_good(record: Mapping[str, Any]) -> bool:
    """Whether the request was answered with 2xx."""
    response = record.get("response")
    return isinstance(response, dict) and 200 <= response.get("status_code", 0) < 300


@dataclass
class Tally:
    """Counts of records, and which input lines they settle. Tokens as the endpoints report them."""

    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    settled_ids: set[str] = field(default_factory=set)
    settled_lines: set[int] = field(default_factory=set)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record."""
        good = is_good(record)
        self.completed += good
        self.failed += not good
        error = record.get("error")
        if isinstance(error, dict) and isinstance(error.get("line"), int):
            self.settled_lines.add(error["line"])
        elif isinstance(record.get("custom_id"), str):
            self.settled_ids.add(record["custom_id"])
        if good:
            self._add_usage(record["response"].get("body"))

    def settles(self, item: Item | BadLine) -> bool:
        """Whether a line's record is there already."""
        if isinstance(item, BadLine):
            return item.line in self.settled_lines
        return item.custom_id in self.settled_ids

    def _add_usage(self, body: Any) -> None:
        usage = body.get("usage") if isinstance(body, dict) else None
        if not isinstance(usage, dict):
            return
        self.input_tokens += usage.get("prompt_tokens", usage.get("input_tokens")) or 0
        self.output_tokens += usage.get("completion_tokens", usage.get("output_tokens")) or 0
        details = usage.get("prompt_tokens_details", usage.get("input_tokens_details")) or {}
        self.cached_tokens += details.get("cached_tokens") or 0


def _body_id(body: Any) -> str | None:
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"

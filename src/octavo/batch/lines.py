"""The input: OpenAI's batch lines, {"custom_id", "method", "url", "body"}. A malformed line is told
as such and hurts no other; a file of any size is read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

PAIR_ENDPOINTS = ("/v1/rerank", "/v1/score", "/v2/rerank", "/rerank", "/score")
"""Those that want scores of pairs of texts."""
ENDPOINTS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"),
    *PAIR_ENDPOINTS,
)
MAX_LINE_BYTES = 8 << 20
MAX_ID_CHARS = 512
_KNOWN = frozenset({"custom_id", "method", "url", "body"})


@dataclass(frozen=True)
class Item:
    """A request to run. line: its number in the file, from 1."""

    line: int
    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class BadLine:
    """A line that is no request. param: the field at fault, if one is."""

    line: int
    custom_id: str | None
    code: str
    message: str
    param: str | None = None


class _LineError(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


def read_items(file: BinaryIO, endpoint: str | None = None) -> Iterator[Item | BadLine]:
    """All lines of `file` in order, blank ones left out. endpoint: the only url allowed."""
    seen: set[str] = set()
    for number, raw in _lines(file):
        custom_id: str | None = None
        try:
            data = _object(raw)
            custom_id = _custom_id(data)
            if custom_id in seen:
                raise _LineError("duplicate_custom_id", f"custom_id {custom_id!r} was used before")
            seen.add(custom_id)
            yield Item(number, custom_id, _url(data, endpoint), _body(data))
        except _LineError as error:
            yield BadLine(number, custom_id, error.code, str(error), error.param)


def count_lines(file: BinaryIO) -> int:
    """Lines that are not blank."""
    return sum(1 for _ in _lines(file))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """(number, content) of lines that are not blank; None for one that is too long."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield number, None
        elif line.strip():
            yield number, line


def _object(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise _LineError("line_too_long", f"the line is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        data = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = "nested too deeply" if isinstance(error, RecursionError) else error
        raise _LineError("invalid_json_line", f"the line is not valid JSON: {message}") from None
    if not isinstance(data, dict):
        raise _LineError("invalid_json_line", "the line must be a JSON object")
    return data


def _custom_id(data: dict[str, Any]) -> str:
    value = data.get("custom_id")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS or not _is_text(value):
        message = f"custom_id: expected a string of 1 to {MAX_ID_CHARS} characters"
        raise _LineError("invalid_custom_id", message, "custom_id")
    return value


def _url(data: dict[str, Any], endpoint: str | None) -> str:
    for name in data.keys() - _KNOWN:
        shown = name[:80].encode("ascii", "backslashreplace").decode()
        raise _LineError("unknown_field", f"{shown}: there is no such field", shown)
    if data.get("method", "POST") != "POST":
        raise _LineError("invalid_method", "method: expected POST", "method")
    url = data.get("url", endpoint)
    allowed = (endpoint,) if endpoint else ENDPOINTS
    if not isinstance(url, str) or url not in allowed:
        raise _LineError("invalid_url", f"url: expected {' or '.join(allowed)}", "url")
    return url


def _body(data: dict[str, Any]) -> dict[str, Any]:
    body = data.get("body")
    if not isinstance(body, dict):
        raise _LineError("invalid_body", "body: expected a JSON object", "body")
    if body.get("stream"):
        raise _LineError("invalid_body", "body.stream: a batch cannot stream", "body.stream")
    return body


def _is_text(value: str) -> bool:
    """Without lone surrogates, which JSON may smuggle in and no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Logs of a server and its engine process: a line a record, as text for people or as JSON.

A record may carry fields: `log.info("message", extra={"fields": {"request_id": ...}})`. Prompts and
answers are never logged.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any, Literal

from octavo.errors import InvalidParameterError

Format = Literal["text", "json"]
LEVELS = {"critical": 50, "error": 40, "warning": 30, "info": 20, "debug": 10, "trace": 5}
_ENVIRONMENT = "OCTAVO_LOG_OF_PARENT"  # "level:format", for the engine process

_chosen: tuple[str, Format] | None = None


def configure(level: str = "info", format: Format = "text") -> None:
    """Send all logs of this process to standard error. Raises InvalidParameterError for a level
    or format that does not exist."""
    global _chosen
    if level not in LEVELS:
        raise InvalidParameterError("log_level", f"got {level!r}, expected one of {list(LEVELS)}")
    if format not in ("text", "json"):
        raise InvalidParameterError("log_format", f"got {format!r}, expected text or json")
    _chosen = level, format
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger("octavo").setLevel(LEVELS[level])
    chatty = level in ("debug", "trace")  # the HTTP server's own remarks
    logging.getLogger("uvicorn").setLevel(LEVELS[level] if chatty else root.level)


def wants_json() -> bool:
    """Whether `configure` chose JSON."""
    return _chosen is not None and _chosen[1] == "json"


def child_environment() -> dict[str, str]:
    """What a child process's environment needs for `configure_child`."""
    return {_ENVIRONMENT: ":".join(_chosen)} if _chosen else {}


def configure_child() -> None:
    """Log as the parent process does; nothing if the parent does not."""
    level, _, format = os.environ.get(_ENVIRONMENT, "").partition(":")
    if level in LEVELS and format in ("text", "json"):
        configure(level, "json" if format == "json" else "text")


def pass_on(line: bytes) -> None:
    """Write a line of a child's standard error: as it is if it is a record already, as a warning
    of "octavo.engine" if it is not (the last words of a crash, a library's print)."""
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    if text.startswith('{"time":') and text.endswith("}"):
        print(text, file=sys.stderr, flush=True)
    elif text.strip():
        logging.getLogger("octavo.engine.stderr").warning("%s", text)


class JsonFormatter(logging.Formatter):
    """{"time", "level", "logger", "message", fields..., "exception"?} on one line of ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        shown: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message key=value ...`; announcements as `octavo: message`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        fields = getattr(record, "fields", {})
        pairs = "".join(f" {key}={_shown(value)}" for key, value in fields.items())
        if record.name == "octavo" and record.levelno == logging.INFO:
            return f"octavo: {record.getMessage()}{pairs}"
        head = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{pairs}"
        if record.exc_info:
            head += "\n" + self.formatException(record.exc_info)
        return head


def _moment(record: logging.LogRecord) -> str:
    """UTC to the millisecond, as RFC 3339 writes it."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _shown(value: Any) -> str:
    """A word as it is, any other value as JSON."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        is_word = bool(value) and not set(value) & set(' "=')
        return value if is_word else json.dumps(value)
    return json.dumps(value, default=str, separators=(",", ":"))

"""When requests are sent: as fast as answers come, at random moments, or as a trace says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import FormatError
from octavo.records import replace

MAX_TRACE_LINE = 16 * 2**20
"""Bytes."""


@dataclass(frozen=True)
class ClosedLoop:
    """`concurrency` clients, each sending its next request when its last one is answered."""

    concurrency: int

    def __str__(self) -> str:
        return f"closed loop, {self.concurrency} clients"


@dataclass(frozen=True)
class OpenLoop:
    """`rate` requests a second on average, whatever the server makes of them. burstiness 1 is a
    Poisson process; above 1 arrivals are more even, below 1 they come in bursts (gamma intervals
    of this shape)."""

    rate: float
    burstiness: float = 1.0
    seed: int = 0

    def moments(self) -> Iterator[float]:
        """Seconds from the start, without end."""
        draw = random.Random(self.seed)
        now = 0.0
        while True:
            yield now
            now += draw.gammavariate(self.burstiness, 1 / (self.rate * self.burstiness))

    def __str__(self) -> str:
        shape = "Poisson" if self.burstiness == 1 else f"burstiness {self.burstiness:g}"
        return f"open loop, {self.rate:g} requests/s, {shape}"


@dataclass(frozen=True)
class TraceEntry:
    """One line of a trace. at_s: seconds from the start. Without text, input_len words."""

    at_s: float
    input_len: int | None = None
    output_len: int | None = None
    prompt: str = ""
    messages: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class Trace:
    """Recorded arrivals, in order."""

    entries: tuple[TraceEntry, ...]

    def __str__(self) -> str:
        return f"trace of {len(self.entries)} requests over {self.entries[-1].at_s:.0f} s"


def read_trace(path: Path, speedup: float = 1.0) -> Trace:
    """A JSONL file of objects with "timestamp" (seconds; missing: all at once), and "prompt" or
    "messages" or "input_length", and "output_length" (also "input_len", "output_len",
    "max_tokens"). speedup 2 sends twice as fast. Raises FormatError naming file and line."""
    entries = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                entries.append(_entry(f"{path}: line {number}", line, speedup))
    if not entries:
        raise FormatError(f"{path}: holds no requests; expected one JSON object a line")
    entries.sort(key=lambda entry: entry.at_s)
    start = entries[0].at_s
    return Trace(tuple(replace(entry, at_s=entry.at_s - start) for entry in entries))


def _entry(where: str, line: bytes, speedup: float) -> TraceEntry:
    if len(line) > MAX_TRACE_LINE:
        raise FormatError(f"{where}: has {len(line)} bytes, at most {MAX_TRACE_LINE}")
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{where}: is a {type(found).__name__}, expected an object")
    return TraceEntry(
        at_s=_number(where, found, "timestamp") / speedup,
        input_len=_length(where, found, "input_length", "input_len"),
        output_len=_length(where, found, "output_length", "output_len", "max_tokens"),
        prompt=_text(where, found),
        messages=_messages(where, found),
    )


MAX_TIMESTAMP_S = 1e12
"""Of a trace. More are not seconds but smaller units since 1970."""


def _number(where: str, found: dict[str, Any], name: str) -> float:
    value = found.get(name, 0.0)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < MAX_TIMESTAMP_S:  # NaN is not below it either
        raise FormatError(f"{where}: {name} is {value!r:.80}, expected seconds")
    return float(value)


def _length(where: str, found: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = found.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**7:
            raise FormatError(f"{where}: {name} is {value!r:.80}, expected a number of tokens")
        return value
    return None


def _text(where: str, found: dict[str, Any]) -> str:
    value = found.get("prompt", "")
    if not isinstance(value, str):
        raise FormatError(f"{where}: prompt is a {type(value).__name__}, expected text")
    return value


def _messages(where: str, found: dict[str, Any]) -> tuple[dict[str, str], ...]:
    value = found.get("messages", [])
    good = isinstance(value, list) and all(
        isinstance(m, dict) and all(isinstance(v, str) for v in m.values()) for m in value
    )
    if not good:
        raise FormatError(f"{where}: messages: expected a list of objects with texts")
    return tuple(value)

"""Whose request it is and by when it wants its answer: the same for every protocol.

Fields of the body (`deadline`, `ttft_deadline`, in seconds; `user`; `lora`), headers
(`X-Octavo-Deadline`, `X-Octavo-TTFT-Deadline`) and the API key are read where the body is, and hold
for all engine requests that the handler makes.
"""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from octavo.engine.types import Request as EngineRequest
from octavo.serving.errors import invalid
from octavo.serving.record import current_record

MAX_DEADLINE_S = 1e6
MAX_TENANT = 256  # characters
HEADERS = {"deadline": "X-Octavo-Deadline", "ttft_deadline": "X-Octavo-TTFT-Deadline"}
EXEMPT = frozenset({"/v1/batches", "/tokenize", "/detokenize"})  # where nothing is generated


@dataclass(frozen=True)
class Terms:
    """Deadlines are moments on the monotonic clock. lora: the adapter that the body names."""

    tenant: str = ""
    deadline_s: float | None = None
    ttft_deadline_s: float | None = None
    lora: str = ""

    def apply(self, request: EngineRequest) -> None:
        """Put them on an engine request."""
        request.tenant = self.tenant or request.tenant
        if request.deadline_s is None:
            request.deadline_s = self.deadline_s
        if request.ttft_deadline_s is None:
            request.ttft_deadline_s = self.ttft_deadline_s
        request.lora = self.lora or request.lora


NO_TERMS = Terms()
_current: ContextVar[Terms] = ContextVar("octavo_terms", default=NO_TERMS)


def current_terms() -> Terms:
    """Those of the HTTP request that this task works for."""
    return _current.get()


def hold(terms: Terms) -> None:
    """Make them those of this task's request."""
    _current.set(terms)


def take_terms(request: Request, data: dict[str, Any], several_keys: bool) -> None:
    """Take the terms out of a body and its request's headers. Raises 400 naming what is wrong.

    several_keys: clients are told apart by their API keys; otherwise by what they say of
    themselves.
    """
    if request.url.path in EXEMPT:
        return
    record = current_record()
    began_s = record.began_s if record is not None else time.monotonic()
    moments = {name: _moment(request, data, name, began_s) for name in HEADERS}
    key = str(getattr(request.state, "tenant", ""))
    tenant = key if several_keys else _user(data) or key
    hold(Terms(tenant, moments["deadline"], moments["ttft_deadline"], _lora(data)))


def _lora(data: dict[str, Any]) -> str:
    value = data.pop("lora", None)
    if value is not None and not isinstance(value, str):
        raise invalid("lora", f"lora: got {str(value)[:40]!r}, expected the name of an adapter")
    return value or ""


def _moment(request: Request, data: dict[str, Any], name: str, began_s: float) -> float | None:
    param, value = name, data.pop(name, None)
    if value is None:
        param, text = HEADERS[name], request.headers.get(HEADERS[name])
        if text is None:
            return None
        value = _number(text)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= MAX_DEADLINE_S:
        got = "" if value is None else f"got {str(value)[:40]!r}, "
        raise invalid(param, f"{param}: {got}expected seconds, more than 0, at most 1,000,000")
    return began_s + float(value)


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _user(data: dict[str, Any]) -> str:
    """What the body says of its user, in OpenAI's and Anthropic's fields."""
    metadata = data.get("metadata")
    inner = metadata.get("user_id") if isinstance(metadata, dict) else None
    for value in (data.get("user"), data.get("safety_identifier"), inner):
        if isinstance(value, str) and value:
            return value[:MAX_TENANT]
    return ""

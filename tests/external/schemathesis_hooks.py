"""Makes bodies from vendors' documents ones that a scripted server of one model can answer: its
model, no stream, few tokens; every second one without the rarer fields."""

from __future__ import annotations

from typing import Any

import schemathesis

CORE = frozenset(
    {
        *("model", "messages", "input", "instructions", "system", "stream", "temperature", "top_p"),
        *("max_tokens", "max_output_tokens", "max_completion_tokens", "metadata", "tools"),
    }
)
LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens")


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Change one body."""
    if not isinstance(body, dict):
        return body
    fewer = {name: value for name, value in body.items() if name in CORE or len(body) % 2}
    limits = {name: 16 for name in LIMITS if isinstance(fewer.get(name), int)}
    return {**fewer, **limits, "model": "tiny", "stream": False}

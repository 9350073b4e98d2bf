"""What answers say about themselves: token counts and fingerprint."""

from __future__ import annotations

from typing import Any

from octavo import __version__
from octavo.serving.generation import Generation

FINGERPRINT = f"octavo-{__version__}"
"""`system_fingerprint` of every answer: what computed it."""


def usage(generation: Generation) -> dict[str, Any]:
    """The `usage` object."""
    details = {"reasoning_tokens": generation.num_reasoning_tokens}
    return {
        "prompt_tokens": generation.num_prompt_tokens,
        "completion_tokens": generation.num_output_tokens,
        "total_tokens": generation.num_prompt_tokens + generation.num_output_tokens,
        "prompt_tokens_details": {"cached_tokens": generation.num_cached_tokens},
        "completion_tokens_details": details,
    }

"""Scores of pairs of texts: by a cross-encoder that reads both, or by the angle of two vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from octavo.backends.base import Floats
from octavo.errors import InvalidParameterError


def align(queries: Sequence[str], documents: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of one query with every document, or of as many queries as documents in turn."""
    if len(queries) not in (1, len(documents)) or not documents:
        got = f"got {len(queries)} texts and {len(documents)} of text_2"
        raise InvalidParameterError("text_1", f"{got}; give one, or as many of both")
    repeated = list(queries) * (len(documents) if len(queries) == 1 else 1)
    return list(zip(repeated, documents, strict=True))


def score_of(label: float, sigmoid: bool) -> float:
    """A cross-encoder's label as the model's files say that scores are made."""
    if not sigmoid:
        return label
    small = math.exp(-abs(label))
    return 1 / (1 + small) if label >= 0 else small / (1 + small)


def cosine(a: Floats, b: Floats) -> float:
    """Of the angle between two vectors; 0 where one has no length."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    lengths = math.sqrt(float(wide_a @ wide_a) * float(wide_b @ wide_b))
    return float(wide_a @ wide_b) / lengths if lengths > 0 else 0.0


def prompted(text: str, prompts: Mapping[str, str] | None, name: str | None) -> str:
    """The text behind the prompt of this name; "" or None is none."""
    if not name:
        return text
    if prompts is None or name not in prompts:
        known = ", ".join(prompts or ()) or "none"
        raise InvalidParameterError("prompt_name", f"got {name!r:.80}; the model has {known}")
    return prompts[name] + text

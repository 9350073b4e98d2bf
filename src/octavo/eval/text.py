"""The text that is used unless another is given."""

from __future__ import annotations

from importlib.resources import files


def default_text() -> str:
    """About 23 kB written for this project and under its licence: prose, dialogue, documentation,
    Python, C++ and Chinese by turns.

    It is no public benchmark, so no model has learnt it by heart; its perplexities compare with
    nothing but each other.
    """
    return files("octavo.eval").joinpath("text.txt").read_text(encoding="utf-8")

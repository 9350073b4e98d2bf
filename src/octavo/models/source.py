"""Typed reading of a checkpoint's metadata; every error names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octavo.errors import FormatError
from octavo.weights.tensor import Checkpoint

MAX_SIZE = 1 << 24
"""Sizes and counts above this are refused: no model has them, and absurd files do."""
MIN_NUMBER, MAX_NUMBER = 1e-15, 1e12
"""The same for real numbers; NaN and infinity are outside."""


class Source:
    """Keys of one mapping. `prefix` goes before every key that is asked for ("llama.")."""

    def __init__(self, checkpoint: Checkpoint, keys: Mapping[str, Any], prefix: str = "") -> None:
        self.checkpoint = checkpoint
        self.keys = keys
        self.prefix = prefix

    @property
    def is_gguf(self) -> bool:
        """Whether the keys are GGUF metadata; else they are a config.json."""
        return self.checkpoint.format == "gguf"

    def under(self, keys: Mapping[str, Any], prefix: str = "") -> Source:
        """The same file, other keys: a nested object, or another prefix."""
        return Source(self.checkpoint, keys, prefix)

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.keys.get(self.prefix + key) is not None

    def get(self, key: str) -> Any:
        """The value as plain Python (arrays stay arrays), or None."""
        return _plain(self.keys.get(self.prefix + key))

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 to MAX_SIZE. A list of equal numbers (per layer) is one number."""
        value = self.get(key)
        if value is None:
            value = self._default(key, default)
        value = self._one_of_equals(key, value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= MAX_SIZE:
            raise self.error(key, value, f"a whole number from 1 to {MAX_SIZE}")
        return int(value)

    def count(self, key: str) -> int:
        """A whole number from 0 to MAX_SIZE; 0 where the key is absent."""
        value = self.get(key)
        return 0 if value is None or _is_zero(value) else self.size(key)

    def token_id(self, key: str) -> int | None:
        """A token id, or None where the key is absent or negative (some files write -1)."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, value, "a token id")
        return int(value) if 0 <= value < 1 << 31 else None

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0 that single precision can hold and divide by."""
        value = self.get(key)
        if value is None:
            value = self._default(key, default)
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not MIN_NUMBER <= value <= MAX_NUMBER:
            raise self.error(key, value, f"a number from {MIN_NUMBER:g} to {MAX_NUMBER:g}")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.get(key)
        if value is None:
            value = self._default(key, default)
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where the key is absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return bool(value)

    def table(self, key: str) -> Mapping[str, Any]:
        """A nested object; empty where the key is absent or null."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(key, value, "an object")
        return value

    def flags(self, key: str, count: int) -> tuple[bool, ...]:
        """A list of `count` booleans."""
        value = self.get(key)
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
        if not listed or len(value) < count:
            raise self.error(key, value, f"a list of {count} flags, one a layer")
        return tuple(bool(flag) for flag in value[:count])

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of `count` numbers above 0."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) != count:
            raise self.error(key, value, f"a list of {count} numbers")
        return tuple(self.under({key: one}).number(key) for one in value)

    def error(self, key: str, got: object, expected: str) -> FormatError:
        """The error for a bad value; a long one is cut."""
        shown = repr(got)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return FormatError(
            f"{self.checkpoint.path}: '{self.prefix}{key}': got {shown}, expected {expected}"
        )

    def _default(self, key: str, default: Any) -> Any:
        if default is None:
            name = f"'{self.prefix}{key}'"
            raise FormatError(f"{self.checkpoint.path}: {name} is missing; the file is incomplete")
        return default

    def _one_of_equals(self, key: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple, np.ndarray)):
            return value
        items = [_plain(item) for item in value]
        if not items or any(item != items[0] for item in items):
            raise self.error(key, items, "one number for all layers")
        return items[0]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_zero(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 0

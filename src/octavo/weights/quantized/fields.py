"""Typed reading of quantization_config; every error names the file and the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.errors import FormatError, UnsupportedError

_NOTHING: tuple[Any, ...] = (None, False, "", [], {})


class Fields:
    """One object of a quantization config. `where` names it in errors."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def only(self, known: Iterable[str]) -> None:
        """Raise UnsupportedError naming every field that is not known: what it means could change
        the numbers. One that is off or empty changes nothing."""
        given = {name for name, value in self.values.items() if value not in _NOTHING}
        strange = sorted(given - set(known))
        if strange:
            names = ", ".join(ascii(name[:80])[1:-1] for name in strange[:8])
            more = f" and {len(strange) - 8} more" if len(strange) > 8 else ""
            raise UnsupportedError(
                f"{self.where}: unknown fields: {names}{more}; what they mean for the weights is"
                " not known here. Remove them if they mean nothing."
            )

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(key) is not None

    def integer(self, key: str, *others: str, default: int | None = None) -> int:
        """A whole number under `key` or, in old files, under one of `others`."""
        key = next((name for name in (key, *others) if self.has(name)), key)
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 1 << 24:
            raise self.error(key, "a whole number")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        """One of the known words, in small letters. Raises UnsupportedError for another."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, str) or value.lower() not in known:
            raise UnsupportedError(
                f"{self.where}: '{key}': got {value!r:.80}, expected one of {', '.join(known)}"
            )
        return value.lower()

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where the field is absent or null."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.error(key, "a list of names")
        return tuple(value)

    def under(self, key: str) -> Fields:
        """A nested object."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return Fields(f"{self.where}: {key}", value)

    def error(self, key: str, expected: str) -> FormatError:
        """The error for a bad value."""
        return FormatError(
            f"{self.where}: '{key}': got {self.values.get(key)!r:.80}, expected {expected}"
        )

"""API keys: who may call, under which name, with which share of the service."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from octavo.errors import InvalidParameterError

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


@dataclass(frozen=True)
class ApiKey:
    """name: the tenant that requests with this key belong to; several keys may share it. weight:
    its share of the service beside others."""

    name: str
    key: str = field(repr=False)
    weight: float = 1.0


class Keyring:
    """All keys. They are kept as keyed digests, and every lookup compares all of them in constant
    time: neither the time nor a dump of memory's strings tells a key."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._salt = secrets.token_bytes(32)
        keys = list(keys)
        self._names = [(self._digest(key.key), key.name) for key in keys]
        self.weights = {key.name: key.weight for key in keys}

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, given: str) -> str | None:
        """The name of the key that was given, or None."""
        digest, found = self._digest(given), None
        for known, name in self._names:
            if hmac.compare_digest(digest, known):
                found = name
        return found

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._salt, key.encode("utf-8", "surrogatepass"), "sha256")


def load_keyring(keys: Iterable[str], path: str | None) -> Keyring:
    """Keys from options or the environment, named by their hash, and from a file. Raises
    InvalidParameterError naming the line at fault, never the key."""
    named = [ApiKey(f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}", key) for key in keys]
    if any(not key.key.strip() for key in named):
        raise InvalidParameterError("api_key", "got an empty key")
    return Keyring(named + (read_key_file(path) if path else []))


def read_key_file(path: str) -> list[ApiKey]:
    """Keys from lines `NAME KEY [WEIGHT]`; blank lines and those that begin with # are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameterError("api_key_file", f"cannot read {path}: {error}") from None
    keys = [
        _parse_line(line.split(), f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise InvalidParameterError("api_key_file", f"{path} holds no keys")
    if len({key.key for key in keys}) < len(keys):
        raise InvalidParameterError("api_key_file", f"{path} has the same key twice")
    weights = {key.name: key.weight for key in keys}
    if any(weights[key.name] != key.weight for key in keys):
        raise InvalidParameterError("api_key_file", f"{path} gives one name two weights")
    return keys


def _parse_line(words: list[str], where: str) -> ApiKey:
    if len(words) not in (2, 3):
        message = f"{where}: got {len(words)} words, expected NAME KEY [WEIGHT]"
        raise InvalidParameterError("api_key_file", message)
    if not _NAME.fullmatch(words[0]):
        message = f"{where}: a name is 1 to 64 letters, digits or any of . _ @ -"
        raise InvalidParameterError("api_key_file", message)
    try:
        weight = float(words[2]) if len(words) == 3 else 1.0
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        message = f"{where}: the weight must be a number above 0"
        raise InvalidParameterError("api_key_file", message)
    return ApiKey(words[0], words[1], weight)

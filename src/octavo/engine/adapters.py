"""Which adapters an engine has loaded, by name, and who uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from octavo.errors import EngineError, InvalidParameterError

if TYPE_CHECKING:
    from octavo.backends.base import Executable
    from octavo.weights.adapter import Adapter

Reader = Callable[[str], "Adapter"]
"""From a path to an adapter that fits the model."""
NO_ADAPTER = -1


class Adapters:
    """Names to the numbers that the executable knows. Numbers are never used again, so that what
    the prefix cache keeps of one adapter serves no other.

    `check` may be called from any thread, all else belongs to the engine's. read None: no adapter
    can be loaded.
    """

    def __init__(
        self, executable: Executable, read: Reader | None, named: Mapping[str, str]
    ) -> None:
        """named: those to load at once, name -> path."""
        self._executable, self._read = executable, read
        self._numbers: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._next = 0
        for name, path in named.items():
            self.load(name, path)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def names(self) -> tuple[str, ...]:
        """Those loaded, in order."""
        return tuple(self._numbers)

    def load(self, name: str, path: str) -> None:
        """Read and pack an adapter. Raises InvalidParameterError if the name is in use, ModelError
        or BackendError naming what does not fit."""
        if self._read is None:
            raise EngineError("engine: was not made for adapters; see max_lora_rank")
        if name in self._numbers:
            raise InvalidParameterError("lora_name", f"'{name}' is loaded already; unload it first")
        self._executable.load_adapter(self._next, self._read(path))
        self._numbers[name] = self._next
        self._next += 1

    def unload(self, name: str) -> None:
        """Forget an adapter. Raises InvalidParameterError if requests use it, or none has it."""
        self.check(name, "lora_name")
        users = self._users.get(name, 0)
        if users:
            raise InvalidParameterError("lora_name", f"'{name}' is used by {users} requests")
        self._executable.unload_adapter(self._numbers.pop(name))

    def check(self, name: str, param: str = "lora") -> None:
        """Raise InvalidParameterError unless the adapter is there, or none is meant."""
        if name and name not in self._numbers:
            known = ", ".join(self._numbers) or "none is loaded"
            raise InvalidParameterError(param, f"no adapter '{name:.80}'; there is: {known}")

    def number(self, name: str) -> int:
        """What a step calls it."""
        return self._numbers[name] if name else NO_ADAPTER

    def acquire(self, name: str) -> None:
        """A request begins to use it."""
        if name:
            self._users[name] = self._users.get(name, 0) + 1

    def release(self, name: str) -> None:
        """A request ends."""
        if name:
            self._users[name] -= 1

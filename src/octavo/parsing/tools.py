"""A function the model may call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tool:
    """A function the model may call. parameters: its JSON schema; strict: arguments must match it
    even where the model is free to call it or not."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    strict: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its arguments; without one, an object that has no properties."""
        return self.parameters or {"type": "object", "properties": {}}

    def for_template(self) -> dict[str, Any]:
        """In OpenAI's shape, as chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}

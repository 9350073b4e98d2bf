"""What Ollama's clients ask about models: tags, show, ps."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.serving.context import Serving
from octavo.serving.ollama.writer import timestamp
from octavo.serving.prompts import can_infill

LATEST = ":latest"
MAX_VALUE = 4096  # characters or elements of a metadata value that are shown
NEVER = "9999-12-31T23:59:59Z"  # when the model is unloaded


@dataclass(frozen=True)
class Facts:
    """What the model's file says. metadata: values that are neither lists nor long."""

    format: str
    family: str
    size_bytes: int
    modified_s: float
    num_parameters: int
    quantization: str
    digest: str
    metadata: Mapping[str, Any]

    def details(self) -> dict[str, Any]:
        """The `details` object."""
        return {
            "parent_model": "",
            "format": self.format,
            "family": self.family,
            "families": [self.family],
            "parameter_size": _count(self.num_parameters),
            "quantization_level": self.quantization,
        }


class Catalog:
    """Facts about the model that is served, read when first asked for."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._facts: Facts | None = None

    async def facts(self) -> Facts:
        """Raises 503 while the model is not there yet."""
        self._serving.check_ready()
        if self._facts is None:
            path = await self._serving.client.wait_located()
            self._facts = await asyncio.to_thread(_read, path)
        return self._facts

    async def tags(self) -> dict[str, Any]:
        """GET /api/tags."""
        facts = await self.facts()
        return {"models": [self._entry(name, facts) for name in self._serving.all_names]}

    async def running(self) -> dict[str, Any]:
        """GET /api/ps."""
        facts, info = await self.facts(), self._serving.client.ready_info
        more = {
            "expires_at": NEVER,
            "size_vram": 0,
            "context_length": 0 if info is None else info.max_model_len,
        }
        names = self._serving.all_names
        return {"models": [{**self._entry(name, facts), **more} for name in names]}

    async def show(self, verbose: bool) -> dict[str, Any]:
        """POST /api/show."""
        facts, tokenizer = await self.facts(), self._serving.tokenizer
        template = (tokenizer and tokenizer.chat_template) or ""
        return {
            "modelfile": f"# served by Octavo\nFROM {self._serving.names[0]}\n",
            "parameters": "",
            "template": template,
            "details": facts.details(),
            "model_info": {**facts.metadata, "general.parameter_count": facts.num_parameters},
            "capabilities": _capabilities(self._serving),
            "modified_at": timestamp(facts.modified_s),
        }

    def _entry(self, name: str, facts: Facts) -> dict[str, Any]:
        name = name if ":" in name.rpartition("/")[2] else name + LATEST
        return {
            "name": name,
            "model": name,
            "modified_at": timestamp(facts.modified_s),
            "size": facts.size_bytes,
            "digest": facts.digest,
            "details": facts.details(),
        }


def _capabilities(serving: Serving) -> list[str]:
    """What can be asked of the model."""
    if serving.task != "generate":
        return ["embedding"] if serving.task == "embed" else []
    found = ["completion"]
    tokenizer = serving.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        return found
    dialect = serving.need_dialect("model")
    if dialect.calls_parsed and dialect.knows("tools"):
        found.append("tools")
    if dialect.can_reason:
        found.append("thinking")
    return [*found, "insert"] if can_infill(tokenizer) else found


def _read(path: str) -> Facts:
    from octavo.weights import inspect_model, open_checkpoint

    checkpoint = open_checkpoint(path)
    report = inspect_model(checkpoint)
    modified = report.path.stat().st_mtime
    identity = f"{report.path.resolve()} {report.file_bytes} {modified}"
    return Facts(
        format=report.format,
        family=report.architecture or "",
        size_bytes=report.file_bytes,
        modified_s=modified,
        num_parameters=report.num_parameters,
        quantization=report.by_scheme[0].scheme.name if report.by_scheme else "",
        digest=hashlib.sha256(identity.encode()).hexdigest(),
        metadata=_plain(checkpoint.metadata),
    )


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON can show and that are not long; Ollama shows null for the others."""
    found: dict[str, Any] = {}
    for key in metadata:
        value = metadata[key]
        short = isinstance(value, str) and len(value) <= MAX_VALUE
        found[key] = value if short or isinstance(value, bool | int | float) else None
    return found


def _count(number: int) -> str:
    """135_000_000 as "135.00M"."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return str(number)

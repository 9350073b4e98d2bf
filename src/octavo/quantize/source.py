"""A model as it is going to be written: by GGUF's conventions, whatever file it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Floats
from octavo.convert import gguf_view
from octavo.graph import Graph
from octavo.models import ModelConfig, build_graph, config_from, fit_tensors
from octavo.weights import Checkpoint, Tensor, dequantize, open_checkpoint
from octavo.weights.tensor import DerivedTensor

Indices = NDArray[np.signedinteger[Any]]
RUN = 1 << 24
"""Numbers of a table that are looked at together: 64 MB of floats."""


@dataclass(frozen=True)
class Part:
    """Rows start to stop of a stored tensor: what a graph calls by a name of its own."""

    stored: str
    start: int
    stop: int


class SourceModel:
    """checkpoint: the tensors to write. parts: graph's names -> rows of those.

    `columns` and `rows` are factors that belong to a tensor's columns and rows by name: an
    equivalent model, as long as they undo each other.
    """

    def __init__(self, path: Path) -> None:
        opened = open_checkpoint(path)
        self.checkpoint: Checkpoint = gguf_view(opened)
        self.config: ModelConfig = config_from(self.checkpoint)
        self.fitted = fit_tensors(self.config, self.checkpoint)
        self.columns: dict[str, Floats] = {}
        self.rows: dict[str, Floats] = {}
        self.parts = _parts(self.checkpoint.tensors, self.fitted.tensors)

    def graph(self) -> Graph:
        """The model's graph, over the fitted tensors."""
        return build_graph(self.config, self.fitted.tensors)

    def metadata(self) -> dict[str, Any]:
        """All keys, decoded."""
        return dict(self.checkpoint.metadata)

    def expand(self, name: str) -> Floats:
        """A fitted tensor's numbers, with its factors."""
        tensor = self.fitted.tensors[name]
        values = dequantize(tensor)
        self.checkpoint.release(tensor)
        return self._scaled(name, values, slice(None))

    def lookup(self, name: str, rows: Indices) -> Floats:
        """Some rows of `expand`, without the others where the file has them by themselves."""
        tensor = self.fitted.tensors[name]
        if isinstance(tensor, DerivedTensor):
            return self.expand(name)[rows]
        own = tensor.data.reshape(tensor.shape[0], -1)[rows]
        some = Tensor(name, (len(rows), *tensor.shape[1:]), tensor.scheme, own.reshape(-1))
        values = dequantize(some)
        self.checkpoint.release(tensor)
        return self._scaled(name, values, rows)

    def runs(self, name: str) -> Iterator[tuple[int, Floats]]:
        """A stored tensor's numbers with the factors of its parts, and where their rows begin: in
        one piece, or a large table in several."""
        named = [own for own, part in self.parts.items() if part.stored == name]
        tensor = self.checkpoint.tensors[name]
        if any(own in self.rows or own in self.columns for own in named):
            named.sort(key=lambda own: self.parts[own].start)
            yield 0, np.concatenate([self.expand(own) for own in named])
            return
        whole = isinstance(tensor, DerivedTensor) or tensor.size <= RUN
        step = tensor.shape[0] if whole else max(1, RUN * tensor.shape[0] // tensor.size)
        for start in range(0, tensor.shape[0], step):
            stop = min(start + step, tensor.shape[0])
            yield start, dequantize(tensor if whole else tensor.rows(name, start, stop))
        self.checkpoint.release(tensor)

    def _scaled(self, name: str, values: Floats, rows: Indices | slice) -> Floats:
        if name in self.rows:
            values = values * self.rows[name][rows].reshape(-1, *(1,) * (values.ndim - 1))
        return values * self.columns[name] if name in self.columns else values


def _parts(stored: Mapping[str, Tensor], fitted: Mapping[str, Tensor]) -> dict[str, Part]:
    """Fitted tensors of joined ones follow each other in the order they lie in the file."""
    parts = {
        name: Part(name, 0, tensor.shape[0])
        for name, tensor in fitted.items()
        if name in stored and stored[name].shape == tensor.shape
    }
    joined = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_up": ("ffn_gate", "ffn_up")}
    for name, tensor in stored.items():
        pieces = name.split(".")
        if name in parts or len(pieces) != 4 or pieces[2] not in joined:
            continue
        at = 0
        for own in joined[pieces[2]]:
            full = ".".join((*pieces[:2], own, pieces[3]))
            if full in fitted:
                parts[full] = Part(name, at, at + fitted[full].shape[0])
                at += fitted[full].shape[0]
        if at != tensor.shape[0]:
            parts = {own: part for own, part in parts.items() if part.stored != name}
    return parts

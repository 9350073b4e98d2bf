"""The file of 16-bit weights that all start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from octavo.convert.tensors import ENCODERS
from octavo.quantize.recipe import is_quantized
from octavo.weights import SCHEMES, dequantize, open_checkpoint
from octavo.weights.gguf_writer import TensorEntry, write_gguf
from octavo.weights.whole import whole_file

GRID = 32


def write_start(source: Path, target: Path, *, move: bool) -> None:
    """The model in half precision, which every tool reads."""
    checkpoint = open_checkpoint(source)
    entries = [
        TensorEntry(name, t.shape, SCHEMES["F16" if is_quantized(t) else "F32"])
        for name, t in checkpoint.tensors.items()
    ]
    metadata = {**checkpoint.metadata, "general.file_type": 1}
    draw = np.random.default_rng(0)

    def data() -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        for entry, tensor in zip(entries, checkpoint.tensors.values(), strict=True):
            values = dequantize(tensor)
            if move and is_quantized(tensor):
                values = _moved(values, draw)
            yield ENCODERS[entry.scheme.name](values)

    with whole_file(target) as file:
        write_gguf(file, metadata, entries, data())


def _moved(values: np.ndarray[Any, Any], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """Each number moved by up to half of a sixteenth of its block's range."""
    blocks = values.reshape(-1, GRID)
    step = (blocks.max(axis=1, keepdims=True) - blocks.min(axis=1, keepdims=True)) / 15
    shift = draw.random(blocks.shape, np.float32) - np.float32(0.5)
    moved: np.ndarray[Any, Any] = (blocks + step * shift).reshape(values.shape)
    return moved

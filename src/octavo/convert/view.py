"""A Hugging Face folder seen as the GGUF file it would become, tensors turned when asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.convert.groups import grouped
from octavo.convert.run import gguf_header
from octavo.convert.tensors import Turner, as_scheme
from octavo.weights import SCHEMES, Checkpoint, Scheme, Tensor, dequantize
from octavo.weights.tensor import DerivedTensor


@dataclass(frozen=True)
class _Turned:
    """Where a turned tensor's numbers come from."""

    turner: Turner
    tensor: Tensor

    @property
    def sources(self) -> tuple[NDArray[np.uint8], ...]:
        if isinstance(self.tensor, DerivedTensor):
            return self.tensor.origin.sources
        return (self.tensor.data,)

    def values(self) -> NDArray[np.float32]:
        return dequantize(self.turner.to_gguf(self.tensor))

    def blocks(self, scheme: Scheme) -> NDArray[np.uint8]:
        return as_scheme(self.turner.to_gguf(self.tensor), scheme.name).data


def gguf_view(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint itself if it is a GGUF file; else the same model by GGUF's conventions.

    Raises UnsupportedError for what GGUF cannot say.
    """
    if checkpoint.format == "gguf":
        return checkpoint
    turner, metadata, entries, made = gguf_header(checkpoint)
    tensors: dict[str, Tensor] = dict(made)
    stored = grouped(checkpoint, turner.config).tensors
    for entry in entries:
        if entry.name not in made:
            origin = _Turned(turner, stored[entry.name])
            scheme = SCHEMES["F32"] if len(entry.shape) < 2 else entry.scheme
            tensors[entry.name] = DerivedTensor(entry.name, entry.shape, scheme, origin)
    return Checkpoint(
        checkpoint.path, "gguf", metadata, tensors, checkpoint.file_bytes, maps=checkpoint.maps
    )

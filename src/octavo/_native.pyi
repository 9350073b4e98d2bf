"""Types of the native extension. Each part's C++ bindings add their names here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# gguf

class MappedFile:
    """A whole file mapped read-only. Raises OSError."""

    def __init__(self, path: str) -> None: ...
    @property
    def path(self) -> str: ...
    def array(self) -> NDArray[np.uint8]: ...
    def release(self, offset: int, length: int) -> None: ...

class GgufHeader:
    """The checked header of a GGUF file. Raises FormatError naming the field."""

    def __init__(self, file: MappedFile, block_sizes: dict[int, tuple[int, int]]) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def alignment(self) -> int: ...
    def keys(self) -> dict[str, int]: ...
    def value(self, index: int) -> Any: ...
    def tensors(self) -> list[tuple[str, tuple[int, ...], int, int, int]]: ...

def dequantize(
    data: NDArray[np.uint8], ggml_type: int, block_elems: int, block_bytes: int
) -> NDArray[np.float32]: ...

# sampling

class SamplingBatch:
    """A checked, borrowed view of a decoding.SamplingBatch's arrays. Raises ValueError."""

    def __init__(self, batch: Any) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def top_n(self) -> int: ...

def sample(
    logits: NDArray[np.float32], batch: SamplingBatch, num_threads: int = 1
) -> tuple[
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
]: ...
def philox_uniform(seed: int, counter: int) -> float: ...

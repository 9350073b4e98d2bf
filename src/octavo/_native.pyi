"""Types of the native extension. Each part's C++ bindings add their names here."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

# text

class Texts(Sequence[str]):
    """Strings in one allocation, made into Python's when looked at.

    Raises ValueError where one is not UTF-8.
    """

    def __init__(self, texts: list[str]) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

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
    def texts(self, index: int) -> Texts: ...
    def tensors(self) -> list[tuple[str, tuple[int, ...], int, int, int]]: ...

def dequantize(
    data: NDArray[np.uint8], ggml_type: int, block_elems: int, block_bytes: int
) -> NDArray[np.float32]: ...

# quantize

def quantize_blocks(
    x: NDArray[np.float32],
    importance: NDArray[np.float32] | None,
    ggml_type: int,
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...
def gptq_blocks(
    x: NDArray[np.float32],
    start: int,
    factor: NDArray[np.float32],
    importance: NDArray[np.float32] | None,
    ggml_type: int,
    error: NDArray[np.float32],
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...

# sampling

class SamplingBatch:
    """A checked, borrowed view of a decoding.SamplingBatch's arrays. Raises ValueError."""

    def __init__(self, batch: Any) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def top_n(self) -> int: ...
    @property
    def listed_n(self) -> int: ...

def sample(
    logits: NDArray[np.float32], batch: SamplingBatch, num_threads: int = 1
) -> tuple[
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.float32],
]: ...
def philox_uniform(seed: int, counter: int) -> float: ...

# executor

_Int32s = NDArray[np.int32]
_Heads = tuple[int, int, int]
_LowRank = tuple[
    int, int, int, NDArray[np.uint8], int, NDArray[np.uint8], float, NDArray[np.float32]
]
"""Matrix, rank, type and bytes of A, type and bytes of B, scale, gains."""
_Part = tuple[int, int, int, list[float], int]
_ExpertDims = tuple[int, int, int, int, bool, bool]

def preferred_kv_dtype() -> str: ...

class Executor:
    """A compiled program with its weights, activations and KV memory. Raises ValueError."""

    def __init__(self, num_threads: int, max_tokens: int, max_rows: int, products: str) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
    def set_profiling(self, on: bool) -> None: ...
    def profile(self) -> list[tuple[str, float]]: ...
    def plan_matrix(self, source: int, n: int, k: int, as_float: bool) -> int: ...
    def matrix_bytes(self, matrix: int) -> int: ...
    def allocate_weights(self) -> None: ...
    def stand_in_weights(self, most_bytes: int) -> None: ...
    def pack(self, tensors: list[tuple[int, NDArray[np.uint8], bool]]) -> None: ...
    def buffer_bytes(self, width: int, quantized: bool) -> int: ...
    def place_buffer(self, width: int, quantized: bool, offset: int) -> int: ...
    def place_scratch(self, num_bytes: int, offset: int) -> int: ...
    def allocate_arena(self, num_bytes: int) -> None: ...
    def set_output_width(self, width: int) -> None: ...
    def define_kv(
        self, layers: list[tuple[int, int, int]], dtype: str, one_at_a_time: bool
    ) -> int: ...
    def allocate_kv(self, num_blocks: int) -> None: ...
    def copy_blocks(self, pairs: _Int32s) -> None: ...
    def enable_adapters(self, max_rank: int, places: int) -> int: ...
    def load_adapter(self, number: int, changes: list[_LowRank]) -> None: ...
    def unload_adapter(self, number: int) -> None: ...
    def low_rank(self, rows: str, input: int, matrices: list[int]) -> None: ...
    def forward(
        self,
        tokens: _Int32s,
        positions: _Int32s,
        slots: _Int32s,
        query_start: _Int32s,
        seq_len: _Int32s,
        block_table: _Int32s,
        logit_rows: _Int32s,
        types: _Int32s,
        adapters: _Int32s,
        of_prompts: bool,
        out: NDArray[np.float32],
    ) -> None: ...
    def step(
        self,
        tokens: _Int32s,
        positions: _Int32s,
        slots: _Int32s,
        query_start: _Int32s,
        seq_len: _Int32s,
        block_table: _Int32s,
        logit_rows: _Int32s,
        types: _Int32s,
        adapters: _Int32s,
        of_prompts: bool,
        batch: SamplingBatch,
    ) -> tuple[Any, Any, Any, Any, Any, Any]: ...
    def embed(self, matrix: int, out: int, scale: float, by: str, offset: int) -> None: ...
    def norm(
        self,
        rows: str,
        input: int,
        weight: list[float],
        bias: list[float],
        centred: bool,
        eps: float,
        offset: float,
        out_f32: int,
        out_q8: int,
    ) -> None: ...
    def quantize(self, rows: str, input: int, out_q8: int, order: list[int]) -> None: ...
    def linear(self, rows: str, input: int, parts: list[_Part]) -> None: ...
    def gated(
        self,
        rows: str,
        input: int,
        gate: int,
        up: int,
        activation: str,
        gate_bias: list[float],
        up_bias: list[float],
        out_f32: int,
        out_q8: int,
    ) -> None: ...
    def heads(
        self,
        q: _Heads,
        k: _Heads,
        v: _Heads,
        head_dim: int,
        q_norm: list[float],
        k_norm: list[float],
        eps: float,
        norm_offset: float,
        angles: int,
        half: int,
        interleaved: bool,
        layer: int,
    ) -> None: ...
    def angles(self, inv_freq: list[float], magnitude: float, out: int) -> None: ...
    def attention(
        self,
        q: _Heads,
        sinks: list[float],
        layer: int,
        scale: float,
        window: int,
        softcap: float,
        causal: bool,
        out_f32: int,
        out_q8: int,
    ) -> None: ...
    def head_linear(self, rows: str, input: int, matrix: int, num_heads: int, out: int) -> None: ...
    def latent_write(self, latent: int, key: int, layer: int) -> None: ...
    def latent_attention(
        self, q: int, q_rope: int, num_heads: int, layer: int, scale: float, out: int
    ) -> None: ...
    def elementwise(self, rows: str, kind: str, a: int, b: int, out: int, value: float) -> None: ...
    def route(
        self,
        rows: str,
        input: int,
        out: int,
        bias: list[float],
        top_k: int,
        scores: str,
        normalize: bool,
        scale: float,
        num_groups: int,
        top_groups: int,
        by_top2: bool,
    ) -> None: ...
    def experts_bytes(self, dims: _ExpertDims) -> int: ...
    def experts(
        self,
        rows: str,
        dims: _ExpertDims,
        input: int,
        routes: int,
        scratch: int,
        out: int,
        residual: int,
        matrices: list[tuple[int, int, int]],
        gate_bias: list[float],
        up_bias: list[float],
        down_bias: list[float],
        activation: str,
        alpha: float,
        limit: float,
        in_order: NDArray[np.int32],
    ) -> None: ...
    def gate_rows(self, rows: str, input: int, gate: int, out: int) -> None: ...
    def select(self, input: int, out: int) -> None: ...
    def mean(self, input: int, out: int) -> None: ...
    def output(self, rows: str, input: int) -> None: ...

# tokenizer

class SpmEncoder:
    """SentencePiece-style BPE over V pieces; scores and types are [V], types are GGUF's.

    Raises ValueError if the lengths differ.
    """

    def __init__(
        self,
        pieces: Texts,
        scores: NDArray[np.float32],
        types: NDArray[np.int32],
        *,
        space_prefix: bool,
        strip_right: bool,
        unknown_id: int,
    ) -> None: ...
    def encode(self, text: str, parse_special: bool) -> list[int]: ...

class BpeEncoder:
    """BPE by ranked merges ("left right", best first) over V pieces; types is [V], GGUF's.

    Raises ValueError if the lengths differ.
    """

    def __init__(
        self,
        pieces: Texts,
        merges: Texts,
        types: NDArray[np.int32],
        *,
        whole_words: bool,
        unknown_id: int,
    ) -> None: ...
    def split(self, text: str, parse_special: bool) -> list[str | int]: ...
    def encode_words(self, words: list[str]) -> list[int]: ...

# kernels: for tests; the engine goes through the executor

class PackedMatrix:
    """Weights [N, K] in panels. Raises ValueError for sizes that do not fit."""

    def __init__(
        self, source_type: int, n: int, k: int, raw: NDArray[np.uint8], as_float: bool = False
    ) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def num_panels(self) -> int: ...
    def unpack_row(self, row: int) -> NDArray[np.float32]: ...
    def linear(
        self,
        x: NDArray[np.float32],
        panel_begin: int = 0,
        panel_end: int = -1,
        row_begin: int = 0,
        row_end: int = -1,
        threads: int = 1,
    ) -> NDArray[np.float32]: ...

def active_isa() -> str: ...
def has_bf16_products() -> bool: ...
def multiplies_bf16() -> bool: ...
def round_rows(x: NDArray[np.float32]) -> NDArray[np.float32]: ...
def quantize_rows(
    x: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]: ...
def repack_integers(
    words: NDArray[np.uint32],
    bits: int,
    shape: tuple[int, int],
    strides: tuple[int, int, int],
    interleaved: bool,
    zeros: NDArray[np.int16],
    scales: NDArray[np.uint16],
    source_type: int,
    order: NDArray[np.int32],
) -> NDArray[np.uint8] | None: ...
def scaled_halves(
    codes: NDArray[np.uint8],
    nibbles: bool,
    table: NDArray[np.float32],
    shape: tuple[int, int],
    scales: NDArray[np.float32],
    row_block: int,
    group: int,
) -> NDArray[np.uint8] | None: ...
def packed_bytes(source_type: int, n: int, k: int) -> int: ...
def panel_type(file_type: int) -> int: ...

TABLE_PANELS: int

def measure_int8_peak(threads: int, bits: int = 4) -> float: ...
def measure_f32_peak(threads: int) -> float: ...
def measure_bf16_peak(threads: int) -> float: ...
def measure_read_speed(bytes: int, threads: int, huge_pages: bool = True) -> float: ...
def measure_barrier(threads: int, rounds: int = 200, repeats: int = 100) -> list[float]: ...
def measure_region(threads: int, rounds: int = 200, repeats: int = 100) -> list[float]: ...
def measure_job(threads: int, rounds: int = 200, repeats: int = 100) -> list[float]: ...
def measure_linear(
    source_type: int,
    n: int,
    k: int,
    rows: int,
    threads: int,
    footprint: int,
    repeats: int,
    as_float: bool = False,
    bf16: bool = False,
) -> list[float]: ...

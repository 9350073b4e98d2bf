"""How fast attention reads keys and values in decode, beside the memory's own speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.memory_speed import read_speed
from benchmarks.report import table

from octavo.backends.base import Step
from octavo.backends.cpu.executable import CpuExecutable
from octavo.cache import KvCache
from octavo.models.config import ModelConfig

CONTEXT = 4096
CHUNK = 512
REPEAT = 5


@dataclass(frozen=True)
class KvRead:
    """Attention of one decode step: KV bytes of all layers, seconds, speed of reading memory."""

    streams: int
    context: int
    num_bytes: int
    seconds: float
    read_speed: float

    @property
    def share(self) -> float:
        return self.num_bytes / self.seconds / self.read_speed


def decode_step(streams: int, context: int, block_size: int, num_blocks: int) -> Step:
    """One more token for each stream, the context-th. The streams came in turn, in chunks of
    512 tokens, so their blocks lie as the engine's cache gives them to long prompts."""
    cache = KvCache(num_blocks, block_size)
    tables = [cache.new_table() for _ in range(streams)]
    for start in range(0, context, CHUNK):
        for t in tables:
            cache.allocate(t, start, min(start + CHUNK, context))
    table_ = np.array([t.blocks for t in tables], dtype=np.int32)
    slots = table_[:, -1] * block_size + (context - 1) % block_size
    return Step(
        tokens=np.full(streams, 1000, np.int32),
        positions=np.full(streams, context - 1, np.int32),
        slots=slots.astype(np.int32),
        query_start=np.arange(streams + 1, dtype=np.int32),
        seq_len=np.full(streams, context, np.int32),
        block_table=table_,
        logit_rows=np.arange(streams, dtype=np.int32),
    )


def kv_read_bytes(config: ModelConfig, bytes_per_token: int, context: int) -> int:
    """Bytes one decoded token must read; a sliding layer reads its window only.

    bytes_per_token: keys and values of all layers.
    """
    layer = bytes_per_token // config.num_layers
    windows = [config.window_of(i) or context for i in range(config.num_layers)]
    return sum(layer * min(window, context) for window in windows)


def measure_kv_read(
    executable: CpuExecutable, streams: int, threads: int, num_blocks: int
) -> KvRead:
    """Attention at CONTEXT tokens; num_blocks: of the whole KV memory, which is overwritten. It
    holds one block's keys and values everywhere, each at its own place. The speed of reading memory
    is that of the best of many pieces of some milliseconds, so of each layer the best of four steps
    right after counts; the pair with the median share is the result, since the machine's memory
    drifts."""
    size = executable.block_size
    _fill_first_block(executable, size)
    step = decode_step(streams, CONTEXT, size, num_blocks)
    used = np.unique(step.block_table)
    copies = np.array([(0, i) for i in used if i != 0], dtype=np.int32)
    executable.copy_blocks(copies)
    per_token = executable.plan.kv_bytes_per_block // size
    num_bytes = streams * kv_read_bytes(executable.config, per_token, CONTEXT)
    pairs = []
    for _ in range(REPEAT):
        speed = read_speed(threads)
        seconds = sum(map(min, zip(*(_layers(executable, step) for _ in range(4)), strict=True)))
        pairs.append(KvRead(streams, CONTEXT, num_bytes, seconds, speed))
    return sorted(pairs, key=lambda pair: pair.share)[REPEAT // 2]


def _layers(executable: CpuExecutable, step: Step) -> list[float]:
    """Seconds of each layer's attention."""
    with executable.profile() as regions:
        executable.forward(step)
    return [seconds for name, seconds in regions if name == "attention"]


def _fill_first_block(executable: CpuExecutable, size: int) -> None:
    ids = np.arange(size, dtype=np.int32)
    one = np.array([size], dtype=np.int32)
    start = np.array([0, size], dtype=np.int32)
    last, blocks = one - 1, np.zeros((1, 1), np.int32)
    executable.forward(Step(ids + 1000, ids, ids, start, one, blocks, last))


def report_kv(reads: Sequence[KvRead]) -> str:
    rows = [
        [
            f"{r.streams} x {r.context}",
            f"{r.seconds * 1e3:.2f} ms",
            f"{r.num_bytes / r.seconds / 1e9:.1f}",
            f"{r.share * 100:.0f} %",
        ]
        for r in reads
    ]
    return table(["attention", "a step", "KV GB/s", "of read speed"], rows)

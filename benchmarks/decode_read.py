"""How fast a decode step of one stream reads what it must, beside the memory's own speed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.kv_read import kv_read_bytes
from benchmarks.load import add_requests, steps, until_all_decode
from benchmarks.memory_speed import read_speed
from benchmarks.report import table

from octavo.backends.cpu.executable import CpuExecutable
from octavo.engine import Engine

PROMPT, OUTPUT = 16, 17


@dataclass(frozen=True)
class DecodeRead:
    """num_bytes: weights and KV read by a mean step. pairs: the speed of reading memory, and the
    median native step of a request right after, in bytes/s and seconds."""

    num_bytes: int
    pairs: list[tuple[float, float]]

    @property
    def shares(self) -> list[float]:
        """Of the memory's speed, pair by pair: what a drifting machine disturbs least."""
        return [self.num_bytes / step / speed for speed, step in self.pairs]

    @property
    def share(self) -> float:
        return statistics.median(self.shares)


def measure_decode_read(
    engine: Engine, executable: CpuExecutable, native_s: list[float], threads: int, repeat: int
) -> DecodeRead:
    """native_s: where the seconds of each native step are appended."""
    pairs = []
    for _ in range(repeat):
        speed = read_speed(threads)
        add_requests(engine, 1, PROMPT, OUTPUT)
        until_all_decode(engine)
        native_s.clear()
        for _ in steps(engine):
            pass
        pairs.append((speed, statistics.median(native_s)))
    per_token = executable.plan.kv_bytes_per_block // executable.block_size
    kv = kv_read_bytes(executable.config, per_token, PROMPT + OUTPUT // 2)
    return DecodeRead(executable.streamed_bytes + kv, pairs)


def report_decode(r: DecodeRead) -> str:
    speed, step = (statistics.median(column) for column in zip(*r.pairs, strict=True))
    cells = [
        f"{r.num_bytes / 1e6:.0f} MB",
        f"{step * 1e3:.2f} ms",
        f"{r.num_bytes / step / 1e9:.1f}",
        f"{speed / 1e9:.1f}",
        f"{r.share:.0%} ({min(r.shares):.0%}-{max(r.shares):.0%})",
    ]
    head = ["decode", "weights + KV", "native step", "GB/s", "read speed", "share, by pair"]
    return table(head, [["1 stream", *cells]])

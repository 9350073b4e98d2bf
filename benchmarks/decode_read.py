"""How fast a decode step of one stream reads what it must, beside the memory's own speed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.kv_read import kv_read_bytes
from benchmarks.load import add_requests, steps, until_all_decode
from benchmarks.report import table

from octavo import _native
from octavo.backends.cpu.executable import CpuExecutable
from octavo.engine import Engine

PROMPT, OUTPUT = 16, 17
READ_BYTES = 256 << 20


@dataclass(frozen=True)
class DecodeRead:
    """num_bytes: weights and KV read by a mean step. The steps and the speed of reading memory
    were measured in turn; of both the median and the best are kept."""

    num_bytes: int
    median_step_s: float
    best_step_s: float
    median_read_speed: float
    best_read_speed: float

    @property
    def share(self) -> float:
        """Of the memory's speed, in the median."""
        return self.num_bytes / self.median_step_s / self.median_read_speed

    @property
    def best_share(self) -> float:
        """The same of the best step and the best speed: what a disturbed machine hides."""
        return self.num_bytes / self.best_step_s / self.best_read_speed


def measure_decode_read(
    engine: Engine, executable: CpuExecutable, native_s: list[float], threads: int, repeat: int
) -> DecodeRead:
    """native_s: where the seconds of each native step are appended."""
    step_s: list[float] = []
    speeds: list[float] = []
    for _ in range(repeat):
        speeds.append(_native.measure_read_speed(READ_BYTES, threads))
        add_requests(engine, 1, PROMPT, OUTPUT)
        until_all_decode(engine)
        native_s.clear()
        for _ in steps(engine):
            pass
        step_s += native_s
    per_token = executable.plan.kv_bytes_per_block // executable.block_size
    kv = kv_read_bytes(executable.config, per_token, PROMPT + OUTPUT // 2)
    return DecodeRead(
        executable.streamed_bytes + kv,
        statistics.median(step_s),
        min(step_s),
        statistics.median(speeds),
        max(speeds),
    )


def report_decode(r: DecodeRead) -> str:
    rows = [
        [
            name,
            f"{r.num_bytes / 1e6:.0f} MB",
            f"{step * 1e3:.2f} ms",
            f"{r.num_bytes / step / 1e9:.1f}",
            f"{speed / 1e9:.1f}",
            f"{share:.0%}",
        ]
        for name, step, speed, share in (
            ("median", r.median_step_s, r.median_read_speed, r.share),
            ("best", r.best_step_s, r.best_read_speed, r.best_share),
        )
    ]
    head = ["decode, 1 stream", "weights + KV", "native step", "GB/s", "read speed", "share"]
    return table(head, rows)

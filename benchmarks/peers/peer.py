"""What the comparison asks of every engine. All rates in tokens per second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Task:
    """One line of the table. metric: the field of an `octavo bench engine` result."""

    name: str
    input_len: int
    output_len: int
    streams: int
    metric: str

    def rate(self, seconds: float, first_token_s: float) -> float:
        """The task's rate, from the time of the whole run and of one that ends at its first token.

        Prefill: prompt tokens until the first output token. Decode: output tokens after the first.
        Many streams: all output tokens, from the start of the first prompt to the end.
        """
        if self.streams > 1:
            return self.streams * self.output_len / seconds
        if self.output_len == 1:
            return self.input_len / seconds
        return (self.output_len - 1) / (seconds - first_token_s)


class Peer(Protocol):
    """An engine with one model loaded, or loadable. `name` heads its column."""

    name: str
    version: str

    def measure(self, task: Task) -> float | None:
        """One warmed-up run. None: this engine cannot do the task with this model."""
        ...

    def close(self) -> None:
        """Give back processes and memory."""
        ...


BIG_MODEL_BYTES = 500_000_000


def tasks_for(model: Path) -> tuple[Task, ...]:
    """The lines of one model's table; a big one gets fewer streams, so that a run takes minutes."""
    streams, output_len = (16, 32) if model.stat().st_size > BIG_MODEL_BYTES else (32, 64)
    many = f"{streams} streams, 128 in, {output_len} out"
    return (
        Task("prefill 512", 512, 1, 1, "prefill_tps"),
        # From an almost empty context, as llama-bench's tg128: one prompt token, then 128.
        Task("decode 128", 1, 129, 1, "decode_tps"),
        Task(many, 128, output_len, streams, "output_tps"),
    )

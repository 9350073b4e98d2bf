"""The memory of a load: what the engine's plan says, and the program around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.backends.base import MemoryPlan
from octavo.engine.loading import Opened
from octavo.forecast.load import Load
from octavo.records import replace
from octavo.tokenizer import load_tokenizer


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes. program: Python, libraries, the tokenizer, what grammars share. available: what may be
    taken here."""

    weights: int
    arena: int
    kv: int
    program: int
    kv_per_token: int
    available: int

    @property
    def total(self) -> int:
        return self.weights + self.arena + self.kv + self.program

    @property
    def fits(self) -> bool:
        return self.total <= self.available

    @property
    def left_for_kv(self) -> int:
        """What the KV cache may take beside the rest."""
        return max(0, self.available - self.total + self.kv)

    def as_dict(self) -> dict[str, int | bool]:
        return {
            "weight_bytes": self.weights,
            "arena_bytes": self.arena,
            "kv_bytes": self.kv,
            "program_bytes": self.program,
            "total_bytes": self.total,
            "kv_bytes_per_token": self.kv_per_token,
            "available_bytes": self.available,
            "fits": self.fits,
        }


def memory_need(opened: Opened, load: Load, program: int, available: int) -> MemoryNeed:
    """KV blocks are counted whole, as every request takes them. Of the arena only what so many
    requests touch: an engine sets more addresses aside than memory."""
    block = opened.settings.block_size
    plan = replan(opened, max_seqs=min(load.concurrency, opened.settings.max_seqs))
    return MemoryNeed(
        weights=plan.weight_bytes,
        arena=plan.arena_bytes,
        kv=load.concurrency * blocks(load.context, block) * plan.kv_bytes_per_block,
        program=program,
        kv_per_token=plan.kv_bytes_per_block // block,
        available=available,
    )


def replan(opened: Opened, **changes: Any) -> MemoryPlan:
    """The plan with other settings of the backend."""
    model = (opened.graph, opened.checkpoint, opened.config)
    return opened.backend.plan(*model, replace(opened.settings, **changes))


def blocks(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_size)


def program_bytes(opened: Opened) -> int:
    """What this process holds once it has done all that comes before the weights: the engine's
    modules and the model's tokenizer are the same ones."""
    import octavo.engine.engine  # noqa: F401

    tokenizer = load_tokenizer(opened.checkpoint)
    if tokenizer is not None:
        tokenizer.prepare_chat()
    return resident_bytes()


def resident_bytes() -> int:
    """This process's resident memory; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS")), 0)

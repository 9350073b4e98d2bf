"""One forecast: memory, what fits, speed, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from octavo.engine.loading import Opened, open_model
from octavo.engine.options import EngineOptions
from octavo.errors import UnsupportedError
from octavo.forecast.advice import advice, sequences
from octavo.forecast.load import Load
from octavo.forecast.memory import MemoryNeed, memory_need, program_bytes
from octavo.forecast.speed import Speed, rehearse
from octavo.machine import memory
from octavo.records import replace
from octavo.weights.cache import Progress


@dataclass(frozen=True)
class Forecast:
    """sequences: how many such requests fit at once. speed: None where it was not asked for or
    the backend cannot tell. advice: changes that alone make the load fit; empty if it does."""

    model: str
    backend: str
    threads: int
    load: Load
    memory: MemoryNeed
    sequences: int
    speed: Speed | None
    advice: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For --json."""
        return {
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "load": asdict(self.load),
            "memory": self.memory.as_dict(),
            "sequences_that_fit": self.sequences,
            "speed": self.speed.as_dict() if self.speed else None,
            "advice": list(self.advice),
        }


def forecast(
    options: EngineOptions,
    concurrency: int = 1,
    context: int | None = None,
    output: int | None = None,
    available: int | None = None,
    with_speed: bool = True,
    progress: Progress | None = None,
) -> Forecast:
    """Forecast a load of `concurrency` requests of `context` tokens, `output` of them made.

    available: bytes that may be taken; None asks this machine. Weights are not read. Raises what
    opening a model raises, and InvalidParameterError for lengths the model does not have.
    """
    opened = open_model(
        replace(options, max_num_seqs=max(options.max_num_seqs, concurrency)), progress
    )
    reads_only = opened.options.task != "generate"
    load = Load.of(opened.config.context_length, concurrency, context, output, reads_only)
    program = program_bytes(opened)
    free = memory().available + program if available is None else available
    need = memory_need(opened, load, program + opened.grammar_bytes, free)
    changes = tuple(advice(opened, load, need))
    return Forecast(
        model=opened.name,
        backend=opened.options.backend,
        threads=opened.settings.num_threads,
        load=load,
        memory=need,
        sequences=sequences(opened, load, need),
        speed=_speed(opened, load) if with_speed else None,
        advice=changes,
    )


def _speed(opened: Opened, load: Load) -> Speed | None:
    try:
        return rehearse(opened, load)
    except UnsupportedError:
        return None

"""Before and after: what a quantized model saves and what it loses, measured by running both."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.bench import Workload, bench_engine
from octavo.eval import Divergence, EngineSource, default_text, divergence, open_source, windows_of
from octavo.weights import inspect_model, open_checkpoint

CONTEXT = 512
SPEED = Workload(input_len=8, output_len=48, concurrency=1, seed=0)
"""One stream of 48 tokens."""


@dataclass(frozen=True)
class Side:
    """One model: bytes on disk, bits per weight, generated tokens per second."""

    size_bytes: int
    bits_per_weight: float
    tokens_per_s: float


@dataclass(frozen=True)
class Report:
    """before: the source, computed with float weights; its speed is that of its file as stored."""

    before: Side
    after: Side
    divergence: Divergence
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a JSON file."""
        sides = {"before": asdict(self.before), "after": asdict(self.after), "text": self.text}
        return {**sides, "quality": self.divergence.as_dict()}


def compare(
    before: Path, after: Path, *, tokens: int, text: Path | None = None, threads: int = 0
) -> Report:
    """Perplexity, KL, agreement and speed. Both models are in memory, the source in float32.

    tokens: of the text; None in `text` takes the built-in one. Raises ModelError, BackendError,
    MemoryPlanError or InvalidParameterError.
    """
    speeds = [_speed(path, threads) for path in (before, after)]
    words = text.read_text(encoding="utf-8") if text else default_text()
    with (
        closing(_opened(before, "float", threads)) as reference,
        closing(_opened(after, "native", threads)) as candidate,
    ):
        ids = reference.token_ids(words)
        windows = windows_of(ids, CONTEXT, bos=reference.bos, max_tokens=tokens)
        (result,) = divergence(reference, [candidate], windows)
    sides = [_side(path, speed) for path, speed in zip((before, after), speeds, strict=True)]
    return Report(sides[0], sides[1], result, str(text) if text else "built in")


def _opened(path: Path, weights: str, threads: int) -> EngineSource:
    return open_source(str(path), context=CONTEXT, weights=weights, num_threads=threads)


def _side(path: Path, tokens_per_s: float) -> Side:
    facts = inspect_model(open_checkpoint(path))
    return Side(facts.file_bytes, facts.bits_per_weight, tokens_per_s)


def _speed(path: Path, threads: int) -> float:
    """Generated tokens per second of one stream, as served, after a warm-up."""
    with closing(_opened(path, "native", threads)) as source:
        run = bench_engine(source.engine, SPEED, repetitions=1).decode_tps
    return run.median if run else 0.0

"""Logits of texts and log-probabilities of prompts."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.backends.base import Executable, Floats
from octavo.cache import KvCache
from octavo.engine.logprobs import score_tokens
from octavo.engine.sample import Sample
from octavo.engine.step_builder import StepBuilder
from octavo.errors import EngineError
from octavo.scheduler import Chunk
from octavo.tokenizer.base import Tokenizer


def iter_logits(
    executable: Executable,
    cache: KvCache,
    builder: StepBuilder,
    ids: list[int],
    first: int,
    max_rows: int,
) -> Iterator[Floats]:
    """Logits after ids[first:], in order and in pieces [n, vocab], each valid until the next.
    Holds free KV blocks until it ends; the prefix cache is neither read nor written."""
    table = cache.new_table(use_index=False)
    if not cache.can_allocate(table, 0, len(ids)):
        raise EngineError("engine: no free KV blocks for logits; let running requests finish")
    cache.allocate(table, 0, len(ids))
    try:
        for start in range(0, len(ids), max_rows):
            count = min(max_rows, len(ids) - start)
            logits = executable.forward(
                builder.lone(ids, table, start, count, max(0, first - start))
            )
            if len(logits):
                yield logits
    finally:
        cache.free(table)


def note_scores(chunk: Chunk[Sample], logits: Floats, tokenizer: Tokenizer | None) -> None:
    """Keep the log-probabilities of a prompt chunk's tokens with the request."""
    sample = chunk.sequence
    first = chunk.start + 1
    tokens = sample.ids[first : first + chunk.count]
    scores = sample.state.prompt_logprobs
    assert scores is not None  # made with the request
    del scores[first:]  # a preempted prompt is scored again from its start
    scores += score_tokens(logits, tokens, sample.params.prompt_logprobs or 0, tokenizer)

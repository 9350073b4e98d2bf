"""What of a schedule the backend computes together, and who draws from it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from octavo.engine.sample import Sample
from octavo.scheduler import Chunk, Schedule


class StepPart(Struct):
    """Decodes and unscored chunks of one call. of_prompts: as in `Step`."""

    decodes: list[Sample] = field(default_factory=list)
    chunks: list[Chunk[Sample]] = field(default_factory=list)
    of_prompts: bool = False

    def drawing(self) -> list[Sample]:
        """Samples in the order of the step's logit rows. Asked before `commit` joins followers."""
        drawing = list(self.decodes)
        for chunk in self.chunks:
            if chunk.samples:
                drawing += [chunk.sequence, *chunk.sequence.followers]
        return drawing


def step_parts(plan: Schedule[Sample], prompts_differ: bool) -> Iterator[StepPart]:
    """In the order to run them, none empty. Where prompts differ they are a part of their own, the
    first: what was generated before a preemption attends to its prompt."""
    chunks = [chunk for chunk in plan.chunks if not chunk.score]
    prompts = []
    if prompts_differ:
        prompts = [part for chunk in chunks if (part := _cut(chunk, of_prompt=True)).count > 0]
        chunks = [part for chunk in chunks if (part := _cut(chunk, of_prompt=False)).count > 0]
    if prompts:
        yield StepPart([], prompts, of_prompts=True)
    if plan.decodes or chunks:
        yield StepPart(plan.decodes, chunks)


def _cut(chunk: Chunk[Sample], of_prompt: bool) -> Chunk[Sample]:
    """What of a chunk is of the prompt, or behind it; maybe nothing."""
    start, end, border = chunk.start, chunk.start + chunk.count, chunk.sequence.num_prompt
    if of_prompt:
        end = max(start, min(end, border))
    else:
        start = min(end, max(start, border))
    return Chunk(chunk.sequence, start, end - start)

"""A schedule cut into what the backend computes together."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.sample import Sample
from octavo.engine.step_parts import step_parts
from octavo.scheduler import Chunk, Schedule
from tests.support.engines import null_engine, request


def sample(num_prompt: int, num_output: int) -> Sample:
    """One that is not in any engine's queue."""
    engine = null_engine(num_kv_blocks=8)
    [found] = engine._new_state(request("x", list(range(num_prompt)))).samples
    for token in range(num_output):
        found.take(token)
    return found


def spans(chunks: list[Chunk[Sample]]) -> list[tuple[int, int]]:
    return [(chunk.start, chunk.start + chunk.count) for chunk in chunks]


@given(
    num_prompt=st.integers(1, 40),
    num_output=st.integers(0, 40),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    decodes=st.booleans(),
)
def test_each_token_is_computed_once_with_its_kind(
    num_prompt: int, num_output: int, cut: tuple[float, float], decodes: bool
) -> None:
    of, total = sample(num_prompt, num_output), num_prompt + num_output
    start = int(min(cut) * (total - 1))
    end = max(start + 1, round(max(cut) * total))
    plan = Schedule([sample(3, 2)] if decodes else [], [Chunk(of, start, end - start)])
    parts = list(step_parts(plan, prompts_differ=True))
    covered: list[int] = []
    for part in parts:
        assert part.decodes or part.chunks
        for begin, last in spans(part.chunks):
            assert begin < last
            assert all((i < num_prompt) == part.of_prompts for i in range(begin, last))
            covered += range(begin, last)
    assert covered == list(range(start, end))
    kinds = [part.of_prompts for part in parts]
    assert kinds == sorted(kinds, reverse=True)
    draws = [drawing for part in parts for drawing in part.drawing()]
    assert (of in draws) == (end == total)
    assert len(draws) == (end == total) + decodes


def test_without_a_difference_all_is_one_part() -> None:
    decode, of = sample(3, 2), sample(4, 4)
    plan = Schedule([decode], [Chunk(of, 2, 6), Chunk(sample(9, 0), 0, 4, score=True)])
    [part] = step_parts(plan, prompts_differ=False)
    assert (part.decodes, spans(part.chunks), part.of_prompts) == ([decode], [(2, 8)], False)
    assert part.drawing() == [decode, of]


def test_scored_chunks_are_no_part() -> None:
    plan = Schedule([], [Chunk(sample(9, 0), 0, 4, score=True)])
    assert list(step_parts(plan, prompts_differ=True)) == []

"""The engine on the null backend: what goes in, what comes out, and when it ends."""

from __future__ import annotations

import pytest

from octavo.engine.types import BACKGROUND_PRIORITY
from octavo.errors import (
    EngineError,
    InvalidParameterError,
    PromptTooLongError,
    QueueFullError,
)
from tests.support.engines import (
    CONTEXT,
    EOS,
    VOCAB,
    byte_tokenizer,
    drain,
    null_engine,
    request,
    run,
    spelling,
)


def test_tokens_come_out_until_max_tokens() -> None:
    engine = null_engine()
    (output,) = run(engine, request("a", [5, 6, 7], max_tokens=4))
    sample = output.outputs[0]
    assert sample.token_ids == [8, 9, 10, 11]
    assert (sample.finish_reason, sample.stop_reason, sample.text) == ("length", None, "")
    assert output.prompt_token_ids == [5, 6, 7]
    assert output.metrics is not None
    times = output.metrics
    assert times.arrival_s <= times.first_scheduled_s <= times.first_token_s <= times.finished_s


def test_without_max_tokens_the_context_ends_it() -> None:
    engine = null_engine(num_kv_blocks=64)
    (output,) = run(engine, request("a", [0] * 100, max_tokens=None))
    assert len(output.outputs[0].token_ids) == CONTEXT - 100
    assert output.outputs[0].finish_reason == "length"


def test_end_of_sequence_stop_ids_and_ignore_eos() -> None:
    script = spelling(b"ab", prompt_len=1)
    (end,) = run(null_engine(script), request("a", [1]))
    assert end.outputs[0].token_ids == [97, 98, EOS]
    assert (end.outputs[0].finish_reason, end.outputs[0].stop_reason) == ("stop", None)
    (stop,) = run(null_engine(script), request("a", [1], stop_token_ids=(98,)))
    assert stop.outputs[0].token_ids == [97, 98]
    assert (stop.outputs[0].finish_reason, stop.outputs[0].stop_reason) == ("stop", 98)
    (on,) = run(null_engine(script), request("a", [1], ignore_eos=True))
    assert len(on.outputs[0].token_ids) == 8


def test_min_tokens_bans_what_would_end_the_sample() -> None:
    engine = null_engine(spelling(b"", prompt_len=1))
    (output,) = run(engine, request("a", [1], min_tokens=3))
    ids = output.outputs[0].token_ids
    assert len(ids) == 4
    assert EOS not in ids[:3]
    assert ids[3] == EOS


def test_logprobs_hold_the_chosen_token_first_then_the_best() -> None:
    engine = null_engine(tokenizer=byte_tokenizer())
    (output,) = run(engine, request("a", [96], logprobs=3, max_tokens=2))
    sample = output.outputs[0]
    assert sample.logprobs is not None
    for token, position in zip(sample.token_ids, sample.logprobs, strict=True):
        assert next(iter(position)) == token
        assert len(position) == 3  # the chosen one is among the best
        assert [entry.rank for entry in position.values()] == [1, 2, 3]
        assert position[token].decoded_token == chr(token)
    total = sum(p[t].logprob for t, p in zip(sample.token_ids, sample.logprobs, strict=True))
    assert sample.cumulative_logprob == pytest.approx(total)


def test_listed_logprobs_come_in_place_of_the_best() -> None:
    """With neighbours that list others or none, and for the same token the same number."""
    engine = null_engine(tokenizer=byte_tokenizer())
    asked = [((5, 98, 97), 2), ((), 3), ((7,), 0), ((), None)]
    wanted = [
        request(str(i), [96], logprobs=top, logprob_token_ids=ids, max_tokens=2)
        for i, (ids, top) in enumerate(asked)
    ]
    outputs = run(engine, *wanted)
    for (ids, top), output in zip(asked, outputs, strict=True):
        sample = output.outputs[0]
        if top is None:
            assert sample.logprobs is None
            continue
        assert sample.logprobs is not None
        for token, position in zip(sample.token_ids, sample.logprobs, strict=True):
            assert next(iter(position)) == token
            assert set(position) == {token, *ids} if ids else len(position) == top
    first, second = outputs[0].outputs[0].logprobs, outputs[1].outputs[0].logprobs
    assert first is not None
    assert second is not None
    assert first[0][97].logprob == second[0][97].logprob
    assert first[1][98].logprob == second[1][98].logprob


def test_zero_logprobs_give_the_chosen_token_only() -> None:
    (output,) = run(null_engine(), request("a", [1], logprobs=0))
    assert output.outputs[0].logprobs is not None
    assert all(len(position) == 1 for position in output.outputs[0].logprobs)


@pytest.mark.parametrize("rows", [2, 8])
def test_prompt_logprobs_score_every_token_but_the_first(rows: int) -> None:
    prompt = [3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    engine = null_engine(max_num_seqs=rows)
    (output,) = run(engine, request("a", prompt, prompt_logprobs=2))
    scores = output.prompt_logprobs
    assert scores is not None
    assert len(scores) == len(prompt)
    assert scores[0] is None
    for i, (token, score) in enumerate(zip(prompt[1:], scores[1:], strict=True), 1):
        assert score is not None
        assert next(iter(score)) == token
        expected = prompt[i - 1] + 1  # what the null backend thinks comes next
        assert score[expected].rank == 1
        assert len(score) == (2 if token == expected else 3)
    assert output.outputs[0].token_ids[0] == 18


def test_prompt_logprobs_agree_with_logits() -> None:
    prompt = [3, 4, 9, 2, 2, 8]
    engine = null_engine(max_num_seqs=4)
    (output,) = run(engine, request("a", prompt, prompt_logprobs=0))
    logits = engine.logits(prompt).astype("float64")
    assert logits.shape == (6, VOCAB)
    import numpy as np

    table = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert output.prompt_logprobs is not None
    for i, score in enumerate(output.prompt_logprobs[1:], 1):
        assert score is not None
        assert score[prompt[i]].logprob == pytest.approx(table[i - 1, prompt[i]], abs=1e-5)
    assert engine.stats().num_used_blocks == 0


def test_max_tokens_zero_scores_a_prompt_and_ends() -> None:
    for prompt in ([3, 4, 5], [3]):
        (output,) = run(null_engine(), request("a", prompt, max_tokens=0, prompt_logprobs=0))
        assert output.outputs[0].token_ids == []
        assert output.outputs[0].finish_reason == "length"
        assert output.prompt_logprobs is not None
        assert len(output.prompt_logprobs) == len(prompt)


def test_samples_of_one_prompt_differ_by_seed_and_repeat_by_seed() -> None:
    def sampled(seed: int | None, name: str = "a", engine_seed: int = 0) -> list[list[int]]:
        engine = null_engine(lambda token, position: 0, seed=engine_seed)
        wanted = request(name, [1, 2], n=3, temperature=50.0, seed=seed, max_tokens=6)
        (output,) = run(engine, wanted)
        return [sample.token_ids for sample in output.outputs]

    first = sampled(seed=7)
    assert first == sampled(seed=7, name="b", engine_seed=1)
    assert len({tuple(ids) for ids in first}) == 3
    assert first != sampled(seed=8)
    assert sampled(None) == sampled(None)
    assert sampled(None) != sampled(None, name="b")
    assert sampled(None) != sampled(None, engine_seed=1)


def test_cached_prompt_tokens_are_reported() -> None:
    engine = null_engine()
    prompt = list(range(14))
    (cold,) = run(engine, request("a", prompt))
    (warm,) = run(engine, request("b", prompt))
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 12)
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids
    stats = engine.stats()
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (28, 12)
    engine.clear_prefix_cache()
    (cold_again,) = run(engine, request("c", prompt))
    assert cold_again.num_cached_tokens == 0


def test_abort_frees_blocks_before_the_next_step() -> None:
    engine = null_engine()
    engine.add_request(request("a", [1] * 30, n=2, max_tokens=50))
    engine.add_request(request("b", [2] * 5, max_tokens=3))
    engine.step()
    assert engine.stats().num_used_blocks > 0
    engine.abort("a")
    engine.abort("nobody")
    assert engine.stats().num_used_blocks == 0
    deltas = drain(engine)
    reasons = [(d.request_id, d.index, d.finish_reason) for d in deltas if d.finish_reason]
    assert reasons == [("a", 0, "abort"), ("a", 1, "abort"), ("b", 0, "length")]
    engine.add_request(request("a", [1]))  # the id is free again
    drain(engine)


def test_a_sample_ends_alone() -> None:
    engine = null_engine()
    engine.add_request(request("a", [1] * 6, n=3, max_tokens=6))
    engine.end_sample("a", 1)  # it has not begun
    engine.step()
    engine.step()
    held = engine.stats().num_used_blocks
    for name, index in (("a", 1), ("a", 1), ("a", 3), ("a", -1), ("nobody", 0)):
        engine.end_sample(name, index)
    assert engine.stats().num_used_blocks < held
    deltas = drain(engine)
    reasons = {d.index: d.finish_reason for d in deltas if d.finish_reason}
    assert reasons == {0: "length", 1: "stop", 2: "length"}
    assert [d.metrics is not None for d in deltas if d.finish_reason] == [False, False, True]
    assert engine.stats().generation_tokens == 6 + 2 + 6
    assert engine.stats().num_used_blocks == 0


def test_the_last_sample_ended_ends_the_request() -> None:
    engine = null_engine()
    engine.add_request(request("a", [1] * 6, n=2, max_tokens=50))
    engine.step()
    engine.end_sample("a", 0)
    engine.end_sample("a", 1)
    assert [d.metrics is not None for d in drain(engine)] == [False, True]
    assert engine.stats().num_used_blocks == 0


def test_abort_reaches_waiting_and_finished_requests() -> None:
    engine = null_engine(max_num_seqs=1)
    engine.add_request(request("a", [1], max_tokens=2))
    engine.add_request(request("b", [2]))
    engine.step()
    engine.abort("b")
    drain(engine)
    engine.abort("a")
    assert not engine.has_work()
    assert engine.stats().finished == {"stop": 0, "length": 1, "abort": 1, "error": 0}


def test_a_failing_step_ends_its_requests_and_nothing_else() -> None:
    def script(token: int, position: int) -> int:
        if token == 200:
            raise RuntimeError("the script is torn")
        return token + 1

    engine = null_engine(script, max_num_seqs=2)
    engine.add_request(request("bad", [199], max_tokens=5, n=2))
    engine.add_request(request("waits", [1], max_tokens=3))
    ended = {d.request_id: d for d in drain(engine) if d.finish_reason}
    assert ended["bad"].finish_reason == "error"
    assert ended["bad"].error is not None
    assert "the script is torn" in ended["bad"].error
    assert ended["waits"].finish_reason == "length"
    stats = engine.stats()
    assert (stats.num_used_blocks, stats.num_step_errors) == (0, 1)
    (output,) = run(engine, request("next", [1], max_tokens=2))
    assert output.outputs[0].token_ids == [2, 3]


def test_a_row_without_a_possible_token_fails_alone() -> None:
    engine = null_engine(lambda token, position: 9)
    bad = request("bad", [1], min_tokens=2, stop_token_ids=tuple(range(VOCAB)))
    engine.add_request(bad)
    engine.add_request(request("good", [1], max_tokens=3))
    deltas = drain(engine)
    errors = [d for d in deltas if d.finish_reason == "error"]
    assert [d.request_id for d in errors] == ["bad"]
    assert errors[0].error is not None
    assert "no token" in errors[0].error
    assert [d.token_ids for d in deltas if d.request_id == "good"] == [[9]] * 3


@pytest.mark.parametrize(
    ("ids", "params", "error", "message"),
    [
        ([], {}, InvalidParameterError, "prompt: is empty"),
        ([1, VOCAB], {}, InvalidParameterError, f"token id {VOCAB}"),
        ([-1], {}, InvalidParameterError, "token id -1"),
        ([1], {"n": 9}, InvalidParameterError, "n: got 9"),
        ([1], {"stop": ("x",)}, InvalidParameterError, "no tokenizer"),
        ([1], {"stop_token_ids": (VOCAB,)}, InvalidParameterError, "stop_token_ids"),
        ([1], {"logit_bias": {VOCAB: 1.0}}, InvalidParameterError, "logit_bias"),
        ([1] * CONTEXT, {"max_tokens": None}, PromptTooLongError, "128 tokens.*may have 128"),
        ([1] * 100, {"max_tokens": 29}, PromptTooLongError, "max_tokens is 29"),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    ids: list[int], params: dict[str, object], error: type[Exception], message: str
) -> None:
    engine = null_engine()
    with pytest.raises(error, match=message):
        engine.add_request(request("a", ids, **params))
    assert not engine.has_work()
    run(engine, request("a", [1]))


def test_what_the_kv_cache_can_never_hold_is_refused() -> None:
    engine = null_engine(num_kv_blocks=3)
    with pytest.raises(PromptTooLongError, match="may have 12"):
        engine.add_request(request("a", [1] * 5, max_tokens=8))
    (output,) = run(engine, request("a", [1] * 5, max_tokens=7))
    assert len(output.outputs[0].token_ids) == 7


def test_duplicate_ids_and_a_full_queue() -> None:
    engine = null_engine(max_num_seqs=1, max_queue=2)
    engine.add_request(request("a", [1]))
    with pytest.raises(InvalidParameterError, match="'a' is in use"):
        engine.add_request(request("a", [1]))
    engine.add_request(request("b", [1]))
    with pytest.raises(QueueFullError, match="2 requests are waiting"):
        engine.add_request(request("c", [1]))
    engine.step()
    engine.add_request(request("c", [1]))
    drain(engine)


def test_a_closed_engine_says_so() -> None:
    engine = null_engine()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.add_request(request("a", [1]))
    with pytest.raises(EngineError, match="closed"):
        engine.step()


def test_priority_goes_first_and_takes_the_place_of_others() -> None:
    engine = null_engine(max_num_seqs=1, scheduling_policy="priority")
    engine.add_request(request("low", [1], priority=1, max_tokens=4))
    engine.step()
    engine.add_request(request("high", [1], priority=0, max_tokens=2))
    order = [d.request_id for d in drain(engine)]
    assert order == ["high", "high", "low", "low", "low"]
    assert engine.stats().num_preemptions == 1


def test_stats_count_tokens_and_steps() -> None:
    engine = null_engine()
    run(engine, request("a", [1, 2, 3], max_tokens=4), request("b", [1], max_tokens=2))
    stats = engine.stats()
    assert (stats.prompt_tokens, stats.generation_tokens, stats.num_steps) == (4, 6, 4)
    assert (stats.num_running, stats.num_waiting, stats.kv_usage) == (0, 0, 0.0)
    assert stats.last_step_tokens == 1
    assert stats.last_step_s > 0


def test_background_work_waits_under_any_policy() -> None:
    engine = null_engine(max_num_seqs=1)
    low = request("low", [1, 2], priority=BACKGROUND_PRIORITY, max_tokens=2)
    engine.add_request(low)
    engine.add_request(request("high", [1, 2], max_tokens=2))
    ended = [delta.request_id for delta in drain(engine) if delta.finish_reason]
    assert ended == ["high", "low"]


def test_requests_that_only_logits_keep_waiting_are_told_so() -> None:
    """An engine whose blocks `iter_logits` holds does not spin."""
    engine = null_engine(num_kv_blocks=6, max_num_seqs=4)
    pieces = engine.iter_logits(list(range(20)))
    next(pieces)
    engine.add_request(request("r", [1] * 6, max_tokens=2))
    with pytest.raises(EngineError, match="5 of 6 KV blocks are held by `iter_logits`"):
        engine.step()
    pieces.close()
    assert [d.token_ids for d in drain(engine)] == [[2], [3]]

"""Adapters in a whole engine: chosen per request, in one batch, never mixed up by caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.engine import Engine, EngineOptions, Request
from octavo.errors import EngineError, FormatError, InvalidParameterError
from tests.support.lora import write_adapter

TESTS = Path(__file__).parent.parent
LORA = TESTS / "fixtures" / "lora"
LLAMA = TESTS / "fixtures" / "families" / "llama-yarn"
NAMES = {name: str(LORA / name) for name in ("all", "rslora", "head")}
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def _llm(**options: Any) -> LLM:
    settings: dict[str, Any] = {"weights": "float", "kv_dtype": "f32", "lora": NAMES}
    return LLM(str(LLAMA), **settings | {"num_kv_blocks": 64} | options)


def _prompts(count: int, length: int = 70) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.integers(3, 96, length - 7 * i).tolist() for i in range(count)]


def _ids(llm: LLM, prompts: list[list[int]], lora: list[str]) -> list[list[int]]:
    outputs = llm.generate(prompts, GREEDY, lora=lora, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def test_one_batch_of_many_adapters() -> None:
    prompts, names = _prompts(8), ["all", "", "rslora", "head", "all", "", "head", "rslora"]
    with _llm() as llm:
        together = _ids(llm, prompts, names)
        llm.clear_prefix_cache()
        alone = [_ids(llm, [p], [n])[0] for p, n in zip(prompts, names, strict=True)]
        assert together == alone
        again = _ids(llm, prompts, names)  # from the prefix cache
        assert again == together
        assert llm.stats().prefix_cache_hits > 0
    with LLM(str(LLAMA), weights="float", kv_dtype="f32", num_kv_blocks=64) as plain:
        bare = [p for p, name in zip(prompts, names, strict=True) if not name]
        assert _ids(plain, bare, [""] * 2) == [together[1], together[5]]


def test_a_cached_prefix_is_of_one_adapter() -> None:
    (prompt,) = _prompts(1)
    with _llm() as llm:
        cold = {name: _ids(llm, [prompt], [name])[0] for name in ("", *NAMES)}
        assert len({tuple(ids) for ids in cold.values()}) == 4
        hits = llm.stats().prefix_cache_hits
        assert hits == 0  # though they all begin alike
        for name, ids in cold.items():
            assert _ids(llm, [prompt], [name])[0] == ids
        assert llm.stats().prefix_cache_hits == 4 * 64


def test_preemption_keeps_the_adapter() -> None:
    prompts, names = _prompts(4, 60), ["all", "", "rslora", "all"]
    with _llm() as llm:
        wanted = _ids(llm, prompts, names)
    with _llm(num_kv_blocks=9, max_model_len=128, enable_prefix_caching=False) as tight:
        assert _ids(tight, prompts, names) == wanted
        assert tight.stats().num_preemptions > 0


def test_names_are_checked() -> None:
    with _llm() as llm:
        with pytest.raises(InvalidParameterError, match=r"lora: no adapter 'other'; there is: all"):
            llm.generate([3, 4], GREEDY, lora="other")
        with pytest.raises(InvalidParameterError, match="got 2 for 1 prompts"):
            llm.generate([3, 4], GREEDY, lora=["all", "all"])
    with pytest.raises(InvalidParameterError, match="lora: got the name ''"):
        EngineOptions(str(LLAMA), lora={"": "x"})
    with pytest.raises(InvalidParameterError, match="adapters are not for task 'embed'"):
        _llm(task="embed")


def test_an_adapter_of_another_base() -> None:
    with pytest.raises(FormatError, match=r"joined.adapter_model\.saf.*: tensor .*_proj\.lora_A"):
        _llm(lora={"joined": str(LORA / "joined")})


def test_the_plan_counts_them_in() -> None:
    with _llm(max_lora_rank=16) as llm, _llm(lora={}) as bare:
        assert llm.plan.weight_bytes > bare.plan.weight_bytes
        assert llm.plan.arena_bytes > bare.plan.arena_bytes
        assert "adapters: 3, " in str(llm.plan)


def test_loading_while_running(tmp_path: Path) -> None:
    engine = Engine.from_options(
        EngineOptions(str(LLAMA), weights="float", num_kv_blocks=64, max_lora_rank=8)
    )
    (prompt,) = _prompts(1)
    adapters = engine.adapters

    def run(name: str) -> list[int]:
        engine.add_request(Request("r", prompt, GREEDY, lora=name))
        tokens: list[int] = []
        while engine.has_work():
            tokens += [token for delta in engine.step() for token in delta.token_ids]
        return tokens

    adapters.load("a", NAMES["all"])
    first = run("a")
    engine.add_request(Request("busy", prompt, GREEDY, lora="a"))
    with pytest.raises(InvalidParameterError, match="'a' is used by 1 requests"):
        adapters.unload("a")
    engine.abort("busy")
    with pytest.raises(InvalidParameterError, match="'a' is loaded already"):
        adapters.load("a", NAMES["rslora"])
    adapters.unload("a")
    with pytest.raises(InvalidParameterError, match="no adapter 'a'"):
        run("a")
    adapters.load("a", NAMES["rslora"])  # another one under the same name
    second = run("a")
    assert second != first
    engine.clear_prefix_cache()
    assert run("a") == second
    large = write_adapter(tmp_path, {"model.layers.0.self_attn.q_proj": (32, 32)}, rank=9)
    with pytest.raises(Exception, match="rank 9; expected 1 to 8"):
        adapters.load("large", str(large))
    engine.close()
    plain = Engine.from_options(EngineOptions(str(LLAMA), num_kv_blocks=64))
    with pytest.raises(EngineError, match="was not made for adapters"):
        plain.adapters.load("a", NAMES["all"])
    plain.close()

"""Same answer whatever the company: a request's ids and logprobs are the same bits however it is
batched, chunked, cached, preempted, and on however many threads it runs; with quantized weights
multiplied in each of the ways that this machine has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from octavo import _native
from octavo.backends import BackendOptions, Executable, get_backend
from octavo.decoding.params import SamplingParams
from octavo.engine import Collector, Engine, EngineOptions, Request, RequestOutput, plan_engine
from octavo.machine import memory
from octavo.models import build_graph, config_from
from octavo.tokenizer import Tokenizer, load_tokenizer
from octavo.weights import open_checkpoint, resolve

pytestmark = pytest.mark.model

PRODUCTS = ("mixed", "int8", "bf16") if _native.has_bf16_products() else ("int8",)
BLOCK = 32
MAX_TOKENS, MAX_ROWS = 512, 24
STORY = (
    "The old lighthouse keeper climbed the stairs every evening, counted the boats that had come "
    "home, and wrote their names into a book that nobody but him had ever opened. "
)
TAILS = [
    "One night",
    "The book",
    "He knew that",
    "A storm",
    "Nobody ever asked him why, but",
    "When the last boat",
]
SHORT = [
    "Hello",
    "The capital of France is",
    "1, 2, 3, 4,",
    "def fibonacci(n):",
    "Water boils at",
    "Once upon a time there was a small robot who",
    "Die Hauptstadt von Deutschland ist",
    "The three primary colours are",
    "import numpy as",
    "\n\n",
    "Q: Why is the sky blue?\nA:",
    "日本の首都は",
]
PROMPTS = [STORY * 2 + tail for tail in TAILS] + [STORY * 5 + tail for tail in TAILS[:2]]
PROMPTS += SHORT + [text + " " + STORY for text in SHORT[:4]]


@dataclass(frozen=True)
class Company:
    """How the requests are run. warm: run twice on one cache, the second time counts."""

    rows: int
    budget: int
    caching: bool = False
    warm: bool = False
    num_blocks: int = 400


ALONE = Company(rows=2, budget=512)  # two, for requests of two samples
SMALL_POOL = 9  # the largest request alone needs 7 blocks
COMPANIES = [
    Company(rows=2, budget=16, caching=True),
    Company(rows=3, budget=64),
    Company(rows=3, budget=512, caching=True, warm=True),
    Company(rows=8, budget=16, caching=True, warm=True),
    Company(rows=8, budget=512, num_blocks=SMALL_POOL),
    Company(rows=24, budget=16, caching=True),
    Company(rows=24, budget=64, caching=True, num_blocks=SMALL_POOL),
    Company(rows=24, budget=64, caching=True, warm=True),
    Company(rows=24, budget=512),
]


QUANTIZED_COMPANIES = [
    Company(rows=3, budget=64),
    Company(rows=8, budget=16, caching=True, warm=True),
    Company(rows=8, budget=512, num_blocks=SMALL_POOL),
]


def compiled(num_threads: int, products: str, kv_dtype: str = "auto") -> Executable:
    checkpoint = open_checkpoint(resolve("smollm2"))
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    options = BackendOptions(
        kv_dtype=kv_dtype,
        products=products,
        num_threads=num_threads,
        max_tokens=MAX_TOKENS,
        max_seqs=MAX_ROWS,
    )
    return get_backend("cpu").compile(graph, checkpoint, config, options)


@pytest.fixture(scope="module", params=PRODUCTS)
def products(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[2, 1], ids=lambda n: f"{n}-threads")
def executable(request: pytest.FixtureRequest, products: str) -> Iterator[Executable]:
    executable = compiled(request.param, products)
    yield executable
    executable.close()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokenizer = load_tokenizer(open_checkpoint(resolve("smollm2")))
    assert tokenizer is not None
    return tokenizer


def requests(tokenizer: Tokenizer) -> list[Request]:
    """24 requests; a few are long enough to outgrow the blocks they were admitted with, some
    have several samples, some draw at random, some are penalised."""
    found = []
    for i, prompt in enumerate(PROMPTS):
        params = SamplingParams(
            max_tokens=66 if 8 <= i < 12 else 2 + i % 4,
            temperature=0.9 if i % 6 == 5 else 0.0,
            repetition_penalty=1.1 if i % 5 == 4 else 1.0,
            n=2 if i % 12 == 5 else 1,
            seed=i,
            logprobs=2,
            prompt_logprobs=0 if i % 8 == 1 else None,
            ignore_eos=True,
        )
        found.append(Request(str(i), tokenizer.encode(prompt), params))
    return found


def engine_for(executable: Executable, company: Company) -> Engine:
    options = EngineOptions(
        "smollm2",
        max_num_seqs=company.rows,
        max_num_batched_tokens=company.budget,
        num_kv_blocks=company.num_blocks,
        enable_prefix_caching=company.caching,
        max_model_len=SMALL_POOL * BLOCK,
    )
    plan = plan_engine(
        executable.plan, executable.config.context_length, options, memory(), 1, "smollm2"
    )
    return Engine(executable, None, options, plan)


def answers(engine: Engine, wanted: list[Request]) -> list[RequestOutput]:
    collectors = {request.request_id: Collector(request) for request in wanted}
    for request in wanted:
        engine.add_request(request)
    while engine.has_work():
        for delta in engine.step():
            collectors[delta.request_id].add(delta)
    assert engine.stats().num_used_blocks == 0
    return [collector.output for collector in collectors.values()]


def lone_answers(
    wanted: list[Request], products: str, kv_dtype: str = "auto"
) -> list[RequestOutput]:
    """What each request gets when it is alone, on two threads."""
    executable = compiled(2, products, kv_dtype)
    engine = engine_for(executable, ALONE)
    found = [answers(engine, [request])[0] for request in wanted]
    executable.close()
    return found


@pytest.fixture(scope="module")
def lone(tokenizer: Tokenizer, products: str) -> list[RequestOutput]:
    return lone_answers(requests(tokenizer), products)


@pytest.mark.parametrize("company", COMPANIES, ids=str)
def test_ids_and_logprobs_are_bit_equal(
    company: Company, executable: Executable, tokenizer: Tokenizer, lone: list[RequestOutput]
) -> None:
    check_company(company, executable, requests(tokenizer), lone)


def check_company(
    company: Company, executable: Executable, wanted: list[Request], lone: list[RequestOutput]
) -> None:
    engine = engine_for(executable, company)
    if company.warm:
        answers(engine, wanted)
    found = answers(engine, wanted)
    for got, expected in zip(found, lone, strict=True):
        assert got.outputs == expected.outputs  # ids, logprobs, ranks, text, reasons
        assert got.prompt_logprobs == expected.prompt_logprobs
    stats = engine.stats()
    assert (stats.num_preemptions > 0) == (company.num_blocks == SMALL_POOL)
    assert (stats.prefix_cache_hits > 0) == company.caching


def second_turns(first: list[RequestOutput]) -> list[Request]:
    """Requests that go on from whole answers."""
    params = SamplingParams(max_tokens=8, temperature=0.0, logprobs=2, ignore_eos=True)
    talks = [[*one.prompt_token_ids, *one.outputs[0].token_ids, 198, 198] for one in first]
    return [Request(f"again-{i}", talk, params) for i, talk in enumerate(talks)]


def test_an_answer_from_the_cache_is_as_good_as_a_prompt(
    executable: Executable, tokenizer: Tokenizer, lone: list[RequestOutput]
) -> None:
    """The blocks of an answer serve the next turn only where they hold what a prompt's would."""
    growing = slice(8, 12)  # answers of 66 tokens: two or three blocks of their own
    turns = second_turns(lone[growing])
    cold = engine_for(executable, Company(rows=2, budget=512))
    expected = [answers(cold, [turn])[0] for turn in turns]
    warm = engine_for(executable, Company(rows=8, budget=64, caching=True))
    answers(warm, requests(tokenizer)[growing])
    before = warm.stats().prefix_cache_hits
    found = answers(warm, turns)
    assert [one.outputs for one in found] == [one.outputs for one in expected]
    hits = warm.stats().prefix_cache_hits - before
    assert (hits > 0) != executable.prompts_differ  # prompts of less than a block


QUANTIZED = [("int8", 2), ("int8", 1), ("int4", 1)]


@pytest.fixture(scope="module", params=QUANTIZED, ids=lambda p: f"{p[0]}-{p[1]}-threads")
def quantized(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Type of the cache, threads."""
    kv_dtype, num_threads = request.param
    return kv_dtype, num_threads


@pytest.fixture(scope="module")
def few_lone(tokenizer: Tokenizer, quantized: tuple[str, int]) -> list[RequestOutput]:
    return lone_answers(few(tokenizer), "auto", quantized[0])


def few(tokenizer: Tokenizer) -> list[Request]:
    """Of each kind some: long prompts that share their start, growing ones, short ones."""
    return requests(tokenizer)[4:14]


@pytest.fixture(scope="module")
def quantized_executable(quantized: tuple[str, int]) -> Iterator[Executable]:
    executable = compiled(quantized[1], "auto", quantized[0])
    yield executable
    executable.close()


@pytest.mark.parametrize("company", QUANTIZED_COMPANIES, ids=str)
def test_bits_are_equal_with_a_quantized_cache(
    company: Company,
    quantized_executable: Executable,
    tokenizer: Tokenizer,
    few_lone: list[RequestOutput],
) -> None:
    check_company(company, quantized_executable, few(tokenizer), few_lone)

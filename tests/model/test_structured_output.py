"""Answers held to grammars, by models that compute: random weights and a real one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from octavo import LLM, Grammar, SamplingParams
from octavo.weights import resolve
from tests.serving.tiny_model import write_tiny_model

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PROMPT = "Who is it? " * 6  # three blocks of byte tokens
GRAMMARS = [
    Grammar("json_schema", json.dumps(PERSON), whitespace=""),
    Grammar.from_regex(r"(ab|c){2,5}\d{3}"),
    Grammar.from_choices(["yes", "no", "yes and no"]),
    Grammar.from_ebnf('root ::= pair{2} "."\npair ::= [a-z] [0-9]? ";"'),
    None,
]


MEASURED = """
import gc, pathlib, sys
from octavo.decoding.grammar_compiler import GrammarCompiler, tree_bytes
from octavo.tokenizer import load_tokenizer
from octavo.weights import open_checkpoint

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

tokenizer = load_tokenizer(open_checkpoint(sys.argv[1]))
size = tokenizer.vocab_size
[tokenizer.token_bytes(token) for token in range(size)]
gc.collect()
before = resident()
compiler = GrammarCompiler(tokenizer, size, tokenizer.eos_token_ids)
compiler.prepare()
gc.collect()
print((resident() - before) / tree_bytes(size))
"""


@pytest.mark.model
def test_what_grammars_share_is_as_large_as_planned() -> None:
    command = [sys.executable, "-c", MEASURED, str(resolve("smollm2"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.7 < float(done.stdout) < 1.05


def check_person(text: str) -> None:
    """The schema, judged by hand."""
    person = json.loads(text)
    assert list(person) == ["name", "age", "tags"]
    assert len(person["name"]) <= 12
    assert 0 <= person["age"] <= 120
    assert set(person["tags"]) <= {"new", "old"}


def requests(count: int) -> list[SamplingParams]:
    return [
        SamplingParams(
            max_tokens=150,
            temperature=i % 3 * 0.75,
            seed=i,
            grammar=GRAMMARS[i % 5],
            logprobs=0,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny"), context=512))


@pytest.fixture(scope="module")
def alone(tiny: str) -> list[Any]:
    """Each request by itself: (ids, logprobs)."""
    with LLM(tiny, max_num_seqs=2, enable_prefix_caching=False) as llm:
        return [told(llm.generate(PROMPT, one, use_tqdm=False)[0]) for one in requests(20)]


def told(output: Any) -> Any:
    sample = output.outputs[0]
    return sample.token_ids, sample.cumulative_logprob, sample.text, sample.finish_reason


def test_random_weights_write_what_they_must(alone: list[Any]) -> None:
    for i, (_, _, text, reason) in enumerate(alone):
        if GRAMMARS[i % 5] is None:
            continue
        assert reason == "stop", text
        assert GRAMMARS[i % 5].accepts(text), text
        if i % 5 == 0:
            check_person(text)
        elif i % 5 == 1:
            assert re.fullmatch(r"(ab|c){2,5}\d{3}", text)


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_seqs": 20},
        {"max_num_seqs": 20, "max_num_batched_tokens": 24, "num_kv_blocks": 9},
        {"max_num_seqs": 7, "num_threads": 1},
    ],
)
def test_company_changes_nothing(tiny: str, alone: list[Any], options: dict[str, Any]) -> None:
    with LLM(tiny, max_model_len=256, **options) as llm:
        outputs = llm.generate([PROMPT] * 20, requests(20), use_tqdm=False)
        if "num_kv_blocks" in options:
            assert llm.stats().num_preemptions > 0
    assert [told(output) for output in outputs] == alone


@pytest.mark.model
def test_a_real_model_writes_valid_json_at_temperature_one() -> None:
    with LLM(str(resolve("smollm2")), max_model_len=1024) as llm:
        params = [
            SamplingParams(
                max_tokens=160, temperature=1.0, seed=i, grammar=Grammar.from_schema(PERSON)
            )
            for i in range(6)
        ]
        prompts = ["A person as JSON:\n"] * 6
        for output in llm.generate(prompts, params, use_tqdm=False):
            assert output.outputs[0].finish_reason == "stop"
            check_person(output.outputs[0].text)
        whole = llm.generate(prompts[0], params[3], use_tqdm=False)[0].outputs[0].text
        assert "".join(delta.text for delta in llm.stream(prompts[0], params[3])) == whole

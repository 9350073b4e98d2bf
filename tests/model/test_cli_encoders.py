"""`octavo embed` and `octavo rerank`, and what other commands say of an encoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from octavo import LLM
from octavo.cli.app import app

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"
BERT, RANKER = str(FIXTURES / "bert"), str(FIXTURES / "bert-rerank")


def run(*args: str, lines: str = "", code: int = 0) -> str:
    result = CliRunner().invoke(app, list(args), input=lines)
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout


def test_embed() -> None:
    with LLM(BERT) as llm:
        own = [o.embedding for o in llm.embed(["the cat", "a"], use_tqdm=False)]
        asked = llm.embed("a", prompt_name="query", use_tqdm=False)[0].embedding
    rows = [line.split(" ") for line in run("embed", BERT, "the cat", "a").splitlines()]
    np.testing.assert_allclose(np.array(rows, float), np.array(own), rtol=1e-6)
    shown = json.loads(run("embed", BERT, "--json", lines="the cat\na\n"))
    assert [one["text"] for one in shown["data"]] == ["the cat", "a"]
    assert [one["embedding"] for one in shown["data"]] == [vector.tolist() for vector in own]
    named = json.loads(run("embed", BERT, "a", "--prompt-name", "query", "--json"))
    assert named["data"][0]["embedding"] == asked.tolist()
    assert len(run("embed", BERT, "a", "--dimensions", "4").split()) == 4


@pytest.mark.parametrize("model", [BERT, RANKER])
def test_rerank(model: str) -> None:
    documents = ["mice", "a cat", "dogs"]
    with LLM(model) as llm:
        own = [output.score for output in llm.score("the cat", documents, use_tqdm=False)]
    best = int(np.argmax(own))
    shown = json.loads(run("rerank", model, "the cat", *documents, "--json"))["results"]
    assert [one["relevance_score"] for one in shown] == sorted(own, reverse=True)
    assert shown[0]["document"]["text"] == documents[best]
    lines = "".join(f"{text}\n" for text in documents)
    assert documents[best] in run("rerank", model, "the cat", "--top-n", "1", lines=lines)


def test_plan_and_inspect() -> None:
    assert "fits" in run("plan", BERT)
    assert json.loads(run("inspect", RANKER, "--json"))


def test_mistakes() -> None:
    for args in (("embed", BERT), ("rerank", RANKER, "query"), ("embed", BERT, "--pooling", "max")):
        assert CliRunner().invoke(app, list(args), input="").exit_code != 0

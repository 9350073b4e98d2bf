"""Encoders in process: embeddings and scores of texts, alone and in company."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, EngineOptions, Pooling, SamplingParams
from octavo.engine import Engine
from octavo.engine.embedding import EMBED_ONLY, vector_of
from octavo.engine.pairs import align, cosine, score_of
from octavo.errors import (
    FormatError,
    InvalidParameterError,
    PromptTooLongError,
    RequestError,
    UnsupportedError,
)
from octavo.records import replace

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"
TEXTS = ["the cat", "a", "of mice and men 1937", "x y z " * 7]
DOCUMENTS = ["mice", "and of the", "b" * 30, ""]


def open_llm(name: str, **options: Any) -> LLM:
    return LLM(str(FIXTURES / name), **options)


def vectors(llm: LLM, prompts: Any, *given: Any, **options: Any) -> list[np.ndarray]:
    return [o.embedding for o in llm.embed(prompts, *given, use_tqdm=False, **options)]


def scores(llm: LLM, first: Any, second: Any) -> list[float]:
    return [output.score for output in llm.score(first, second, use_tqdm=False)]


@pytest.mark.parametrize("name", ["roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_pooling_against_transformers(name: str, kind: Any) -> None:
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids, hidden = arrays["input_ids"].tolist(), arrays["hidden"]
    pooled = {"mean": hidden.mean(axis=0), "cls": hidden[0], "last": hidden[-1]}[kind]
    with open_llm(name) as llm:
        (raw,) = vectors(llm, [ids], Pooling(kind))
        (unit,) = vectors(llm, [ids], Pooling(kind, normalize=True))
    np.testing.assert_allclose(raw, pooled, atol=1e-4)  # modules.json has no Normalize
    np.testing.assert_allclose(unit, pooled / np.linalg.norm(pooled), atol=1e-4)


def test_company_changes_no_bit() -> None:
    with open_llm("modernbert") as llm:
        alone = [vectors(llm, text)[0].tobytes() for text in TEXTS]
        together = [v.tobytes() for v in vectors(llm, TEXTS * 40)]
    with open_llm("modernbert", num_threads=1, max_num_batched_tokens=8, max_num_seqs=2) as llm:
        narrow = [v.tobytes() for v in vectors(llm, TEXTS)]
    assert together == alone * 40
    assert narrow == alone


def test_int8_weights_are_near_and_small() -> None:
    with open_llm("modernbert") as exact, open_llm("modernbert", weights="int8") as small:
        how = Pooling(normalize=True)
        for a, b in zip(vectors(exact, TEXTS, how), vectors(small, TEXTS, how), strict=True):
            assert cosine(a, b) > 0.999
        assert small.plan.weight_bytes < 0.4 * exact.plan.weight_bytes
        alone = vectors(small, TEXTS[0])[0].tobytes()
        assert vectors(small, TEXTS * 9)[0].tobytes() == alone


def test_many_short_texts_share_a_step() -> None:
    engine = Engine.from_options(EngineOptions(str(FIXTURES / "bert"), num_threads=1))
    with LLM.from_engine(engine) as llm:
        llm.embed(["a"] * 128, use_tqdm=False)
        assert llm.stats().num_steps == 2  # 64 rows of 3 tokens each


def test_a_text_longer_than_the_budget_has_a_step_for_itself() -> None:
    with open_llm("bert", max_num_batched_tokens=4) as llm:
        found = vectors(llm, ["a b c d e f g h", "a", "b"])
        assert found[0].tobytes() == vectors(llm, "a b c d e f g h")[0].tobytes()


def test_what_the_files_say() -> None:
    with open_llm("bert") as llm:
        assert llm.options.task == "embed"
        assert llm.options.pooling == "mean"
        assert llm.plan.max_model_len == 48  # sentence_bert_config.json, not the 64 positions
        with pytest.raises(PromptTooLongError, match="48"):
            llm.embed("a " * 47, use_tqdm=False)
        asked = vectors(llm, "mice", prompt_name="query")
        assert asked[0].tobytes() == vectors(llm, "find: mice")[0].tobytes()
        assert vectors(llm, "mice")[0].tobytes() != asked[0].tobytes()
        with pytest.raises(InvalidParameterError, match="query, document"):
            llm.embed("mice", prompt_name="nobody", use_tqdm=False)


def test_the_usual_prompt_and_how_to_leave_it_out() -> None:
    with open_llm("bert", prompts={"query": "find: "}, default_prompt="query") as llm:
        (usual,), (plain,) = vectors(llm, "mice"), vectors(llm, "mice", prompt_name="")
        assert usual.tobytes() == vectors(llm, "find: mice", prompt_name="")[0].tobytes()
        assert usual.tobytes() != plain.tobytes()


def changed(tmp_path: Path, file: str, content: object) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(FIXTURES / "bert", folder)
    (folder / file).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "Dense"),
        ("modules.json", {"type": "Pooling"}, "modules"),
        ("modules.json", [3], "modules"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length"),
        ("sentence_bert_config.json", {"max_seq_length": "512"}, "max_seq_length"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "default_prompt"),
    ],
)
def test_files_that_cannot_be_honoured(
    tmp_path: Path, file: str, content: object, message: str
) -> None:
    folder = changed(tmp_path, file, content)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        LLM(str(folder))


def test_normalize_is_a_module(tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    with LLM(str(changed(tmp_path, "modules.json", modules))) as llm:
        assert np.linalg.norm(vectors(llm, "the")[0]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["bert-rerank", "xlm-roberta-rerank", "modernbert-rerank"])
def test_scores_in_any_company(name: str) -> None:
    with open_llm(name) as llm:
        assert llm.options.task == "score"
        alone = [scores(llm, "the cat", text)[0] for text in DOCUMENTS]
        assert scores(llm, "the cat", DOCUMENTS * 30) == alone * 30
        assert len(set(alone)) == len(alone)
        pairs = scores(llm, TEXTS, DOCUMENTS)
        assert pairs[0] == alone[0]


def test_a_score_is_transformers_label() -> None:
    """Through the tokenizer: [CLS] first [SEP] second [SEP], types 0 and 1."""
    with np.load(FIXTURES / "bert-rerank" / "expected.npz") as arrays:
        ids, types, label = arrays["input_ids"], arrays["types"], float(arrays["labels"][0])
    with open_llm("bert-rerank") as llm:
        request = llm._request(ids.tolist(), EMBED_ONLY)
        request = replace(request, pair_start=int(np.argmax(types)))
        (output,) = llm._run([request], use_tqdm=False)
        assert float(vector_of(output)[0]) == pytest.approx(label, abs=1e-4)
        ids_of_pair, start = llm.tokenizer.encode_pair("a", "b c")  # type: ignore[union-attr]
        assert ids_of_pair == [2, 5, 3, 6, 7, 3]
        assert start == 3
        sigmoid = scores(llm, "a", "b c")[0]
        assert 0 < sigmoid < 1


def test_pairs_of_roberta_have_two_marks_between_them() -> None:
    with open_llm("xlm-roberta-rerank") as llm:
        assert llm.tokenizer is not None
        assert llm.tokenizer.encode_pair("a", "b") == ([0, 5, 2, 2, 6, 2], 4)
        assert not llm.config.encoder.sigmoid  # type: ignore[union-attr]


def test_long_pairs_are_cut_at_the_second_text() -> None:
    with open_llm("bert-rerank") as llm:
        assert llm.tokenizer is not None
        ids, start = llm.tokenizer.encode_pair("a a", "b " * 99, 10)
        assert (len(ids), start) == (10, 4)
        assert ids[-1] == 3
        ids, start = llm.tokenizer.encode_pair("a " * 99, "b", 10)
        assert (len(ids), start) == (10, 9)
        assert len(scores(llm, "a " * 500, "b " * 500)) == 1


def test_scores_of_embeddings_are_cosines() -> None:
    with open_llm("bert") as llm:
        a, b = vectors(llm, ["the cat", "mice"])
        assert scores(llm, "the cat", ["mice", "the cat"]) == pytest.approx([cosine(a, b), 1.0])


def test_tasks_are_refused_by_what_the_model_is_for() -> None:
    with pytest.raises(InvalidParameterError, match="is a model to embed"):
        open_llm("bert", task="generate")
    with pytest.raises(InvalidParameterError, match="is a model to score"):
        open_llm("bert-rerank", task="embed")
    with open_llm("bert-rerank") as llm:
        with pytest.raises(RequestError, match="scoring pairs"):
            llm.generate("hello", SamplingParams(max_tokens=1), use_tqdm=False)
        with pytest.raises(RequestError, match="scoring pairs"):
            llm.embed("hello", use_tqdm=False)
    with open_llm("bert") as llm, pytest.raises(RequestError, match="embeddings"):
        llm.logits([5, 6])


def test_pairs() -> None:
    assert align(["q"], ["a", "b"]) == [("q", "a"), ("q", "b")]
    assert align(["p", "q"], ["a", "b"]) == [("p", "a"), ("q", "b")]
    for first, second in ((["p", "q"], ["a"]), ([], ["a"]), (["p"], [])):
        with pytest.raises(InvalidParameterError):
            align(first, second)
    assert score_of(0.0, True) == 0.5
    assert score_of(-800.0, True) == 0.0
    assert score_of(800.0, True) == 1.0
    assert score_of(-3.5, False) == -3.5
    assert cosine(np.zeros(3, np.float32), np.ones(3, np.float32)) == 0.0

"""LLM over whole model folders without a tokenizer: ids in, the golden ids out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.engine import EnginePlan
from octavo.errors import FormatError, InvalidParameterError, MemoryPlanError, ModelNotFoundError
from tests.serving.tiny_model import write_tiny_model

GOLDEN = Path(__file__).parent.parent / "golden" / "tiny"


@pytest.mark.parametrize("family", ["llama", "gemma3", "mixtral", "gpt-oss", "deepseek-v3-mla"])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_golden_greedy_ids_and_logits(family: str, backend: str) -> None:
    reports: list[EnginePlan] = []
    with np.load(GOLDEN / family / "expected.npz") as arrays:
        expected = dict(arrays)
    prompt, wanted = expected["prompt_ids"].tolist(), expected["greedy_ids"].tolist()
    options: dict[str, Any] = {"backend": backend, "weights": "float", "max_num_seqs": 16}
    with LLM(str(GOLDEN / family), report=reports.append, **options) as llm:
        assert llm.tokenizer is None
        assert reports == [llm.plan]
        params = SamplingParams(temperature=0, max_tokens=len(wanted), ignore_eos=True)
        first, second = llm.generate([prompt, prompt[:3]], params)
        assert first.outputs[0].token_ids == wanted
        assert len(second.outputs[0].token_ids) == len(wanted)
        logits = llm.logits(expected["input_ids"])
        tolerance = 1e-4 if backend == "reference" else 2e-2
        np.testing.assert_allclose(logits, expected["logits"], atol=tolerance, rtol=0)
        with pytest.raises(InvalidParameterError, match="no tokenizer"):
            llm.generate("text")


def test_a_model_that_cannot_be_had_or_does_not_fit() -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        LLM("no-such-model")
    with pytest.raises(MemoryPlanError, match="KV cache do not fit"):
        LLM(str(GOLDEN / "llama"), num_kv_blocks=2**31 - 1)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    assert LLM(str(folder), backend="null").tokenizer is not None
    config = folder / "tokenizer.json"
    tokenizer = json.loads(config.read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": 320, "content": "x!"})
    config.write_text(json.dumps(tokenizer))
    table = r"model\.safetensors: tensor 'model\.embed_tokens\.weight'"
    with pytest.raises(FormatError, match=rf"has 321 tokens, but .*{table} has 320"):
        LLM(str(folder), backend="null")

"""Embeddings of the tiny models: equal to the definition, equal in any company, on all backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, Pooling, SamplingParams
from octavo.backends import get_backend
from octavo.backends.base import BackendOptions, Step
from octavo.decoding.pooling import POOLINGS
from octavo.errors import InvalidParameterError, PromptTooLongError, UnsupportedError
from octavo.graph import Op, without_head
from octavo.models import build_graph, config_from, pooling_of
from octavo.weights import Checkpoint, open_checkpoint

TINY = Path(__file__).parents[1] / "golden" / "tiny"
FAMILIES = ["llama", "qwen2", "gemma3", "mistral-window"]
PROMPTS = [[5, 9, 2], list(range(1, 40)), [7], [3, 3, 3, 3, 3, 3, 3, 3], list(range(60, 10, -1))]


def open_llm(family: str, **options: Any) -> LLM:
    return LLM(str(TINY / family), task="embed", **options)


def vectors(llm: LLM, prompts: list[list[int]], pooling: Pooling | None = None) -> list[Any]:
    return [output.embedding for output in llm.embed(prompts, pooling, use_tqdm=False)]


def states_of(family: str, ids: list[int]) -> Any:
    """Final hidden states by the reference, in one go."""
    checkpoint = open_checkpoint(TINY / family)
    config = config_from(checkpoint)
    graph = without_head(build_graph(config, checkpoint.tensors))
    options = BackendOptions(block_size=32, max_tokens=64, max_seqs=64, weights="float")
    executable = get_backend("reference").compile(graph, checkpoint, config, options)
    executable.allocate_kv(4)
    count = np.arange(len(ids), dtype=np.int32)
    step = Step(
        tokens=np.array(ids, np.int32),
        positions=count,
        slots=count,
        query_start=np.array([0, len(ids)], np.int32),
        seq_len=np.array([len(ids)], np.int32),
        block_table=np.array([[0, 1]], np.int32),
        logit_rows=count,
    )
    return executable.forward(step).copy()


@pytest.mark.parametrize("family", FAMILIES)
def test_head_is_cut_off(family: str) -> None:
    checkpoint = open_checkpoint(TINY / family)
    config = config_from(checkpoint)
    graph = build_graph(config, checkpoint.tensors)
    cut = without_head(graph)
    assert cut.output.shape == ("R", config.hidden_size)
    assert cut.nodes[-1].op is Op.RMS_NORM
    assert len(cut.nodes) == len(graph.nodes) - 1
    assert without_head(cut) is cut


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", POOLINGS)
def test_equal_to_the_definition(family: str, kind: Any) -> None:
    with open_llm(family, weights="float") as llm:
        for ids, found in zip(PROMPTS, vectors(llm, PROMPTS, Pooling(kind)), strict=True):
            states = states_of(family, ids).astype(np.float64)
            expected = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[kind]
            expected /= np.linalg.norm(expected)
            np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("kind", ["mean", "last"])
def test_bit_equal_in_any_company(family: str, kind: Any) -> None:
    """Alone, together, in small steps, with another number of threads."""
    with open_llm(family) as llm:
        alone = [vectors(llm, [ids], Pooling(kind))[0].tobytes() for ids in PROMPTS]
        together = [v.tobytes() for v in vectors(llm, PROMPTS * 3, Pooling(kind))]
    assert together == alone * 3
    with open_llm(family, max_num_batched_tokens=7, num_threads=1) as llm:
        chunked = [v.tobytes() for v in vectors(llm, PROMPTS, Pooling(kind))]
    assert chunked == alone


def test_dimensions_and_norm() -> None:
    with open_llm("llama") as llm:
        (cut,) = vectors(llm, [[1, 2, 3]], Pooling(dimensions=8))
        assert cut.shape == (8,)
        assert np.linalg.norm(cut) == pytest.approx(1, abs=1e-5)
        (raw,) = vectors(llm, [[1, 2, 3]], Pooling(normalize=False))
        assert raw.shape == (llm.config.hidden_size,)
        with pytest.raises(InvalidParameterError, match="dimensions"):
            vectors(llm, [[1]], Pooling(dimensions=llm.config.hidden_size + 1))
        with pytest.raises(PromptTooLongError):
            vectors(llm, [[1] * (llm.plan.max_model_len + 1)])
        longest = [1] * llm.plan.max_model_len
        assert len(vectors(llm, [longest])) == 1


def test_an_engine_has_one_task() -> None:
    with (
        open_llm("llama") as llm,
        pytest.raises(InvalidParameterError, match=r"for embeddings .* only"),
    ):
        llm.generate([1, 2], SamplingParams(max_tokens=1), use_tqdm=False)
    with (
        LLM(str(TINY / "llama")) as llm,
        pytest.raises(InvalidParameterError, match="not for embeddings"),
    ):
        llm.embed([1, 2])


def test_the_default_is_the_models() -> None:
    with open_llm("llama", pooling="cls") as llm:
        assert llm.options.pooling == "cls"
        assert vectors(llm, [[4, 5]])[0].tobytes() == (
            vectors(llm, [[4, 5]], Pooling("cls"))[0].tobytes()
        )
    with open_llm("llama") as llm:
        assert llm.options.pooling == "last"
    with pytest.raises(InvalidParameterError, match="pooling"):
        open_llm("llama", pooling="max")


def checkpoint(kind: Any, metadata: dict[str, Any], pooling: dict[str, Any]) -> Checkpoint:
    return Checkpoint(Path("m"), kind, metadata, {}, 0, extras={"pooling": pooling})


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "last"), (0, "last"), (1, "mean"), (2, "cls"), (3, "last")]
)
def test_pooling_of_gguf(value: int | None, expected: str) -> None:
    metadata = {"general.architecture": "llama"}
    if value is not None:
        metadata["llama.pooling_type"] = value  # type: ignore[assignment]
    assert pooling_of(checkpoint("gguf", metadata, {})) == expected


def test_pooling_of_a_folder() -> None:
    def told(**settings: Any) -> str:
        return pooling_of(checkpoint("safetensors", {}, settings))

    assert told(word_embedding_dimension=8, pooling_mode_mean_tokens=True) == "mean"
    assert told(pooling_mode_cls_token=True, pooling_mode_mean_tokens=False) == "cls"
    assert told(pooling_mode_lasttoken=True) == "last"
    with pytest.raises(UnsupportedError, match="pooling_mode_max_tokens"):
        told(pooling_mode_max_tokens=True)
    with pytest.raises(UnsupportedError):
        pooling_of(checkpoint("gguf", {"general.architecture": "l", "l.pooling_type": "mean"}, {}))

"""Encoders on tiny random models, against hidden states and labels that transformers computed in
float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, Executable, get_backend
from octavo.backends.testing import PagedSequences
from octavo.errors import BackendError, FormatError, UnsupportedError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.records import replace
from octavo.weights import Checkpoint, open_checkpoint

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"
GOLDEN = Path(__file__).parent.parent / "golden" / "encoders"
ENCODERS = sorted([*FIXTURES.iterdir(), *GOLDEN.iterdir()])
BACKENDS = {("reference", "native"): 1e-4, ("cpu", "float"): 2e-2}
MAX_BYTES = 200_000


def ids_of(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def compiled(checkpoint: Checkpoint, backend: str, weights: str) -> Executable:
    config = config_from(checkpoint)
    fitted = fit_tensors(config, checkpoint)
    graph = build_graph(config, fitted.tensors)
    options = BackendOptions(weights=weights, max_tokens=256, max_seqs=256)
    executable = get_backend(backend).compile(graph, fitted, config, options)
    executable.allocate_kv(16)
    return executable


def run(
    executable: Executable, texts: list[list[int]], types: list[list[int]], rows: list[int] | None
) -> np.ndarray:
    """One step over whole texts."""
    paged = PagedSequences(executable.block_size, 16)
    step = paged.step({paged.open(): ids for ids in texts}, rows)
    step.types = np.array([t for kinds in types for t in kinds], np.int32)
    return executable.forward(step).copy()


def has_head(path: Path) -> bool:
    return "rerank" in path.name


def expected(path: Path) -> tuple[list[int], list[int], np.ndarray]:
    with np.load(path / "expected.npz") as arrays:
        ids = arrays["input_ids"].tolist()
        types = arrays["types"].tolist() if "types" in arrays else [0] * len(ids)
        wanted = arrays["labels"][None] if has_head(path) else arrays["hidden"]
        return ids, types, wanted


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=ids_of)
def test_fixture_is_small(path: Path) -> None:
    files = [file for file in path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MAX_BYTES


@pytest.mark.parametrize("path", ENCODERS, ids=ids_of)
@pytest.mark.parametrize(("backend", "weights"), BACKENDS)
def test_results(path: Path, backend: str, weights: str) -> None:
    ids, types, wanted = expected(path)
    executable = compiled(open_checkpoint(path), backend, weights)
    rows = [0] if has_head(path) else None
    got = run(executable, [ids], [types], rows)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=BACKENDS[backend, weights])


@pytest.mark.parametrize("path", ENCODERS, ids=ids_of)
def test_company_changes_no_bit(path: Path) -> None:
    ids, types, _ = expected(path)
    texts = [ids, ids[:1], ids[3:20], ids[:33]]
    kinds = [types, types[:1], types[3:20], types[:33]]
    executable = compiled(open_checkpoint(path), "cpu", "native")
    starts = np.cumsum([0, *map(len, texts)]).tolist()
    rows = starts[:-1] if has_head(path) else None
    together = run(executable, texts, kinds, rows)
    for index, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        alone = run(executable, [text], [kind], [0] if has_head(path) else None)
        span = slice(index, index + 1) if has_head(path) else slice(*starts[index : index + 2])
        np.testing.assert_array_equal(together[span], alone)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_part_of_a_text_is_refused(backend: str) -> None:
    executable = compiled(open_checkpoint(FIXTURES / "bert"), backend, "native")
    paged = PagedSequences(executable.block_size, 16)
    sequence = paged.open()
    executable.forward(paged.step({sequence: [5, 6, 7]}))
    with pytest.raises(BackendError, match=r"whole|part"):
        executable.forward(paged.step({sequence: [8]}))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_unknown_type_is_refused(backend: str) -> None:
    executable = compiled(open_checkpoint(FIXTURES / "bert"), backend, "native")
    with pytest.raises(BackendError, match="type"):
        run(executable, [[5, 6]], [[0, 2]], None)


def test_layers_share_the_memory_of_one() -> None:
    path = FIXTURES / "modernbert"
    executable = compiled(open_checkpoint(path), "cpu", "native")
    one_layer = 2 * executable.block_size * 4 * 32 * 4  # K and V, 4 heads padded to 32, float32
    assert executable.plan.kv_bytes_per_block == one_layer


def changed(name: str, **keys: object) -> Checkpoint:
    checkpoint = open_checkpoint(FIXTURES / name)
    return replace(checkpoint, metadata={**checkpoint.metadata, **keys})


def test_heads_of_other_tasks_are_refused() -> None:
    checkpoint = changed("bert", architectures=["BertForTokenClassification"])
    with pytest.raises(UnsupportedError, match="ForTokenClassification"):
        config_from(checkpoint)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling"),
        ("modernbert", {"classifier_activation": "mish"}, "classifier_activation"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("roberta", {"pad_token_id": 4000}, "max_position_embeddings"),
        ("roberta", {"pad_token_id": "one"}, "pad_token_id"),
        ("bert-rerank", {"sbert_ce_default_activation_function": "torch.Tanh"}, "sbert_ce"),
        ("bert-rerank", {"sentence_transformers": 3}, "sentence_transformers"),
    ],
)
def test_bad_settings_name_their_key(name: str, keys: dict[str, object], message: str) -> None:
    with pytest.raises((UnsupportedError, FormatError), match=message):
        config_from(changed(name, **keys))


def test_a_head_of_another_shape_is_named() -> None:
    checkpoint = open_checkpoint(FIXTURES / "bert-rerank")
    tensors = dict(checkpoint.tensors)
    tensors["cls.weight"] = tensors["cls.output.weight"]
    checkpoint = replace(checkpoint, tensors=tensors)
    config = config_from(checkpoint)
    with pytest.raises(FormatError, match=r"cls\.weight"):
        build_graph(config, fit_tensors(config, checkpoint).tensors)

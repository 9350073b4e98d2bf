"""Falcon rewritten as GGUF holds it: all queries, then all keys, then all values of a layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.backends import BackendOptions, get_backend
from octavo.backends.testing import float_tensor, run_tokens
from octavo.errors import UnsupportedError
from octavo.models import build_graph, config_from, fit_tensors
from octavo.weights import Checkpoint, Tensor, dequantize, open_checkpoint

FIXTURES = Path(__file__).parent.parent / "fixtures" / "families"


def joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """attn_q, attn_k and attn_v of every layer as one attn_qkv."""
    found = {n: t for n, t in tensors.items() if ".attn_q." not in n}
    for name in [name for name in tensors if ".attn_q." in name]:
        parts = [name.replace("attn_q", part) for part in ("attn_q", "attn_k", "attn_v")]
        rows = np.concatenate([dequantize(tensors[part]) for part in parts])
        whole = name.replace("attn_q", "attn_qkv")
        found[whole] = float_tensor(whole, rows)
        found.pop(parts[1])
        found.pop(parts[2])
    return found


def twin(family: str) -> Checkpoint:
    source = open_checkpoint(FIXTURES / family)
    config = config_from(source)
    tensors = joined(dict(fit_tensors(config, source).tensors))
    keys = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.layer_norm_epsilon": config.norm_eps,
    }
    metadata = {"general.architecture": "falcon"} | {f"falcon.{k}": v for k, v in keys.items()}
    return Checkpoint(Path(f"{family}.gguf"), "gguf", metadata, tensors, 0)


@pytest.mark.parametrize("family", ["falcon-multiquery", "falcon-grouped", "falcon-one-norm"])
def test_logits(family: str) -> None:
    checkpoint = twin(family)
    config = config_from(checkpoint)
    checkpoint = fit_tensors(config, checkpoint)
    options = BackendOptions(max_tokens=64, max_seqs=64)
    graph = build_graph(config, checkpoint.tensors)
    executable = get_backend("reference").compile(graph, checkpoint, config, options)
    with np.load(FIXTURES / family / "expected.npz") as expected:
        logits = run_tokens(executable, expected["input_ids"].tolist(), 64)
        np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)


def test_alibi_is_refused_by_name() -> None:
    source = open_checkpoint(FIXTURES / "falcon-serial")
    metadata = {**source.metadata, "alibi": True}
    with pytest.raises(UnsupportedError, match=r"'alibi' is true.*falcon-rw"):
        config_from(Checkpoint(source.path, source.format, metadata, source.tensors, 0))


def test_first_files_leave_sizes_unsaid() -> None:
    source = open_checkpoint(FIXTURES / "falcon-multiquery")
    unsaid = ("max_position_embeddings", "ffn_hidden_size", "intermediate_size")
    said = {key: value for key, value in source.metadata.items() if key not in unsaid}
    config = config_from(Checkpoint(source.path, source.format, said, source.tensors, 0))
    assert (config.context_length, config.intermediate_size) == (2048, 4 * config.hidden_size)

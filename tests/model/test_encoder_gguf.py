"""Encoders rewritten as GGUF files hold them: the same vectors and scores, tokenizer included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, Pooling
from octavo.weights import dequantize, open_checkpoint
from tests.support.gguf_file import BOOL, F32, I32, STR, U32, Array, TensorSpec, write_gguf

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoders"
TEXTS = ["the cat", "a", "of mice and men 1937"]
CONTROL, NORMAL = 3, 1


def gguf_keys(name: str) -> dict[str, tuple[int, Any]]:
    """What llama.cpp's converter writes of a config.json."""
    config = json.loads((FIXTURES / name / "config.json").read_text())
    modern = config["model_type"] == "modernbert"
    arch = "modern-bert" if modern else "bert"
    offset = config["pad_token_id"] + 1 if "roberta" in config["model_type"] else 0
    keys: dict[str, tuple[int, Any]] = {
        "context_length": (U32, config["max_position_embeddings"] - offset),
        "embedding_length": (U32, config["hidden_size"]),
        "block_count": (U32, config["num_hidden_layers"]),
        "feed_forward_length": (U32, config["intermediate_size"]),
        "attention.head_count": (U32, config["num_attention_heads"]),
        "attention.layer_norm_epsilon": (F32, config.get("norm_eps") or config["layer_norm_eps"]),
        "attention.causal": (BOOL, False),
        "pooling_type": (U32, 4 if "rerank" in name else 1),
    }
    if modern:
        keys["attention.sliding_window"] = (U32, config["local_attention"])
        keys["attention.sliding_window_pattern"] = (U32, 3)
        keys["rope.freq_base"] = (F32, 160000.0)
        keys["rope.freq_base_swa"] = (F32, 10000.0)
        keys["classifier.pooling_type"] = (U32, 1 if config["classifier_pooling"] == "mean" else 2)
    general = {"general.architecture": (STR, arch)}
    return general | {f"{arch}.{key}": value for key, value in keys.items()} | tokenizer_keys(name)


def tokenizer_keys(name: str) -> dict[str, tuple[int, Any]]:
    """WordPiece with the spaces before words instead of the marks before their rests."""
    vocab = json.loads((FIXTURES / name / "tokenizer.json").read_text())["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.__getitem__)
    special = pieces[:5]

    def spelled(piece: str) -> str:
        if piece in special:
            return piece
        return piece[2:] if piece.startswith("##") else "▁" + piece

    begin, end, unknown, padding = (0, 2, 3, 1) if "roberta" in name else (2, 3, 1, 0)
    types = [CONTROL if piece in special else NORMAL for piece in pieces]
    return {
        "tokenizer.ggml.model": (STR, "bert"),
        "tokenizer.ggml.tokens": (STR, Array(STR, [spelled(piece) for piece in pieces])),
        "tokenizer.ggml.token_type": (I32, Array(I32, types)),
        "tokenizer.ggml.cls_token_id": (U32, begin),
        "tokenizer.ggml.seperator_token_id": (U32, end),
        "tokenizer.ggml.unknown_token_id": (U32, unknown),
        "tokenizer.ggml.padding_token_id": (U32, padding),
    }


def write(name: str, path: Path) -> Path:
    """The fixture as a file, without the positions that belong to padding."""
    rows_cut = 2 if "roberta" in name else 0
    checkpoint = open_checkpoint(FIXTURES / name)
    tensors = []
    for key, tensor in checkpoint.tensors.items():
        array = dequantize(tensor).reshape(tensor.shape)
        array = array[rows_cut:] if key == "position_embd.weight" else array
        if key.startswith("pooler."):
            continue
        tensors.append(TensorSpec(key, array.shape[::-1], "F32", array.tobytes()))
    path.write_bytes(write_gguf(gguf_keys(name), tensors).data)
    return path


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_embeddings(name: str, tmp_path: Path) -> None:
    how = Pooling("mean", normalize=True)
    with LLM(str(FIXTURES / name)) as folder:
        expected = [o.embedding for o in folder.embed(TEXTS, how, use_tqdm=False)]
    with LLM(str(write(name, tmp_path / "model.gguf"))) as llm:
        assert llm.options.pooling == "mean"
        got = [o.embedding for o in llm.embed(TEXTS, use_tqdm=False)]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["bert-rerank", "modernbert-rerank", "modernbert-rerank-cls"])
def test_scores(name: str, tmp_path: Path) -> None:
    with LLM(str(FIXTURES / name)) as folder:
        expected = [o.score for o in folder.score("the cat", TEXTS, use_tqdm=False)]
    with LLM(str(write(name, tmp_path / "model.gguf"))) as llm:
        assert llm.options.task == "score"
        assert [o.score for o in llm.score("the cat", TEXTS, use_tqdm=False)] == expected

"""Small made-up vocabularies as GGUF metadata."""

from __future__ import annotations

from typing import Any

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"


def metadata(model: str, tokens: list[tuple[str, int, float]], **keys: Any) -> dict[str, Any]:
    """GGUF metadata of a vocabulary of (piece, type, score) tokens; keys as tokenizer.ggml.*."""
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [piece for piece, _, _ in tokens],
        "tokenizer.ggml.token_type": np.array([kind for _, kind, _ in tokens], np.int32),
        "tokenizer.ggml.scores": np.array([score for _, _, score in tokens], np.float32),
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }


def spm(**keys: Any) -> dict[str, Any]:
    """A "llama" vocabulary: bytes, a few letters, and pieces of several letters by score."""
    tokens = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
    tokens += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
    tokens += [
        ("<tool>", USER_DEFINED, 0.0),
        ("\n\n", USER_DEFINED, 0.0),
        ("\n", USER_DEFINED, 0.0),
    ]
    pieces = [SPACE + "a", "ab", "bab", SPACE + SPACE, "aé", "éa", SPACE, "a", "b", "é", "😀"]
    tokens += [(piece, NORMAL, -float(rank)) for rank, piece in enumerate(pieces)]
    return metadata("llama", tokens, **keys)


def byte_level(pre: str = "gpt-2", **keys: Any) -> dict[str, Any]:
    """A "gpt2" vocabulary: the byte alphabet, some merges, a control and a user-defined token."""
    from octavo.tokenizer.pieces import BYTE_OF_CHAR

    merges = ["a b", "ab a", "Ġ a", "Ġa b", "Ã ©", "a Ã©", "ð Ł", "Ġ Ġ", "1 2", "a a", "aa aa"]
    pieces = [*BYTE_OF_CHAR, *(merge.replace(" ", "") for merge in merges)]
    tokens = [(piece, NORMAL, 0.0) for piece in pieces]
    tokens += [("<|im_end|>", CONTROL, 0.0), ("<tool>", USER_DEFINED, 0.0)]
    return metadata("gpt2", tokens, merges=merges, pre=pre, **keys)

"""How a checkpoint says its embeddings are to be pooled."""

from __future__ import annotations

from typing import Any

from octavo.decoding.pooling import PoolingKind
from octavo.errors import UnsupportedError
from octavo.weights.tensor import Checkpoint

_GGUF_KINDS: dict[int, PoolingKind] = {1: "mean", 2: "cls", 3: "last"}
_FOLDER_KEYS: dict[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


def pooling_of(checkpoint: Checkpoint) -> PoolingKind:
    """The kind that GGUF's "{architecture}.pooling_type" or sentence-transformers'
    1_Pooling/config.json names; without either "last", whose token has seen the whole text.
    Raises UnsupportedError for a kind there is no code for."""
    if checkpoint.format == "gguf":
        key = f"{checkpoint.metadata.get('general.architecture')}.pooling_type"
        return _from_gguf(str(checkpoint.path), key, checkpoint.metadata.get(key))
    return _from_folder(str(checkpoint.path), checkpoint.extras.get("pooling", {}))


def _from_gguf(path: str, key: str, value: Any) -> PoolingKind:
    if value is None or value == 0:
        return "last"
    kind = _GGUF_KINDS.get(value) if isinstance(value, int) else None
    if kind is None:
        raise UnsupportedError(f"{path}: '{key}': got {value!r}, expected 1, 2 or 3")
    return kind


def _from_folder(path: str, settings: dict[str, Any]) -> PoolingKind:
    modes = [name for name in settings if name.startswith("pooling_mode_")]
    chosen = [name for name in modes if settings[name]]
    if not chosen:
        return "last"
    if len(chosen) > 1 or chosen[0] not in _FOLDER_KEYS:
        raise UnsupportedError(f"{path}: pooling {', '.join(sorted(chosen))} is not supported")
    return _FOLDER_KEYS[chosen[0]]

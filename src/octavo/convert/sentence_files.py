"""sentence-transformers' files, which say how a folder's texts become vectors, as GGUF keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from octavo.models import ModelConfig, embedding_settings, pooling_of
from octavo.models.pooling import SENTENCE_KEY, sentence_files
from octavo.weights import Checkpoint
from octavo.weights.folder import EXTRAS, MODULES

_RANK = 4
"""GGUF's pooling_type of a model that gives labels."""
_KINDS = {"mean": 1, "cls": 2, "last": 3}
_MODES = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}


def pooling_keys(checkpoint: Checkpoint, config: ModelConfig, architecture: str) -> dict[str, Any]:
    """GGUF's pooling_type; what it cannot say (prompts, lengths) under a key of Octavo's own."""
    if not _embeds(checkpoint, config):
        return {}
    if config.encoder is not None and config.encoder.num_labels:
        return {f"{architecture}.pooling_type": _RANK}
    kind = pooling_of(checkpoint, is_encoder=config.encoder is not None)
    files = {n: v for n, v in checkpoint.extras.items() if n in EXTRAS or n == "modules"}
    files.pop("generation_config", None)
    kept = json.dumps(files, ensure_ascii=False) if files else None
    return {f"{architecture}.pooling_type": _KINDS[kind], SENTENCE_KEY: kept}


def folder_extras(checkpoint: Checkpoint, config: ModelConfig) -> dict[str, dict[str, Any]]:
    """A GGUF file's settings as the folder's files, by the names of `Checkpoint.extras`."""
    kept = sentence_files(checkpoint)
    labelled = config.encoder is not None and config.encoder.num_labels
    if kept or labelled or not _embeds(checkpoint, config):
        return dict(kept)
    kind = pooling_of(checkpoint, is_encoder=config.encoder is not None)
    modes = {mode: mode == _MODES[kind] for mode in _MODES.values()}
    parts = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(parts)
    ]
    return {
        "pooling": {"word_embedding_dimension": config.hidden_size, **modes},
        "modules": {"modules": modules},
    }


def extra_texts(extras: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """The files' texts by path."""
    values = {EXTRAS[name]: value for name, value in extras.items() if name in EXTRAS}
    if "modules" in extras:
        values[MODULES] = extras["modules"]["modules"]
    return {path: json.dumps(value, indent=2, ensure_ascii=False) for path, value in values.items()}


def lost_settings(before: Checkpoint, after: Checkpoint, config: ModelConfig) -> list[str]:
    """What `after` would say otherwise of texts and their vectors."""
    encoder = config.encoder
    if not _embeds(before, config) or (encoder is not None and encoder.num_labels):
        return []
    old, new = (embedding_settings(c, is_encoder=encoder is not None) for c in (before, after))
    return [] if old == new else [f"embedding: {old!r:.200} would become {new!r:.200}"]


def _embeds(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    """Whether the files say that the model makes vectors."""
    if checkpoint.format == "gguf":
        key = f"{checkpoint.metadata.get('general.architecture')}.pooling_type"
        return config.encoder is not None or checkpoint.metadata.get(key) is not None
    return config.encoder is not None or "pooling" in checkpoint.extras

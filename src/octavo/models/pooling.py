"""How a checkpoint says its texts are to become vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from octavo.decoding.pooling import PoolingKind
from octavo.errors import FormatError, UnsupportedError
from octavo.weights.json_object import parse_json_object
from octavo.weights.tensor import Checkpoint

_GGUF_KINDS: dict[int, PoolingKind] = {1: "mean", 2: "cls", 3: "last"}
_FOLDER_KEYS: dict[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
SENTENCE_KEY = "octavo.sentence_transformers"
"""Metadata key of a GGUF file that holds those files of a folder, as JSON by their names in
`Checkpoint.extras`; `octavo convert` writes it."""
_MODULES = ("Transformer", "Pooling", "Normalize")
_MAX_LENGTH = 1 << 24


class EmbeddingSettings(Struct, frozen=True):
    """What sentence-transformers' files beside a model say, or the usual where they are absent.

    max_length: tokens of a text, None for the model's context. prompts: texts by name that go
    before a text; default_prompt: the name of the one that is used unasked.
    """

    pooling: PoolingKind
    normalize: bool = True
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


def embedding_settings(checkpoint: Checkpoint, *, is_encoder: bool = False) -> EmbeddingSettings:
    """Raises FormatError for wrong files, UnsupportedError for what there is no code for."""
    pooling = pooling_of(checkpoint, is_encoder=is_encoder)
    extras, where = sentence_files(checkpoint), str(checkpoint.path)
    prompts = extras.get("sentence_transformers", {})
    named = prompts.get("prompts") or {}
    if not isinstance(named, dict) or not all(isinstance(text, str) for text in named.values()):
        raise FormatError(f"{where}: 'prompts': got {named!r:.80}, expected texts by name")
    default = prompts.get("default_prompt_name")
    if default is not None and not (isinstance(default, str) and default in named):
        known = ", ".join(named)
        raise FormatError(f"{where}: 'default_prompt_name': got {default!r:.80}, expected {known}")
    length = extras.get("sentence_bert", {}).get("max_seq_length")
    whole = isinstance(length, int) and not isinstance(length, bool) and 1 <= length < _MAX_LENGTH
    if length is not None and not whole:
        raise FormatError(f"{where}: 'max_seq_length': got {length!r:.80}, expected 1 or more")
    return EmbeddingSettings(pooling, _normalizes(extras, where), length, named, default)


def sentence_files(checkpoint: Checkpoint) -> Mapping[str, dict[str, Any]]:
    """A folder's files by name, or those that a GGUF file keeps. Raises FormatError."""
    kept = checkpoint.metadata.get(SENTENCE_KEY) if checkpoint.format == "gguf" else None
    if kept is None:
        return checkpoint.extras
    where = f"{checkpoint.path}: '{SENTENCE_KEY}'"
    found = parse_json_object(kept.encode() if isinstance(kept, str) else b"", where)
    for name, value in found.items():
        if name not in _KEPT or not isinstance(value, dict):
            raise FormatError(f"{where}: {name!r:.40}: expected an object of {', '.join(_KEPT)}")
    if "modules" in found and "modules" not in found["modules"]:
        raise FormatError(f"{where}: 'modules': expected a list under 'modules'")
    return found


_KEPT = ("pooling", "sentence_transformers", "sentence_bert", "modules")


def pooling_of(checkpoint: Checkpoint, *, is_encoder: bool = False) -> PoolingKind:
    """The kind that GGUF's "{architecture}.pooling_type" or sentence-transformers'
    1_Pooling/config.json names. Without either the mean for encoders, and for decoders "last",
    whose token has seen the whole text. Raises UnsupportedError for a kind there is no code for."""
    usual: PoolingKind = "mean" if is_encoder else "last"
    if checkpoint.format == "gguf":
        key = f"{checkpoint.metadata.get('general.architecture')}.pooling_type"
        return _from_gguf(str(checkpoint.path), key, checkpoint.metadata.get(key), usual)
    return _from_folder(str(checkpoint.path), checkpoint.extras.get("pooling", {}), usual)


def _from_gguf(path: str, key: str, value: Any, usual: PoolingKind) -> PoolingKind:
    if value is None or value == 0:
        return usual
    kind = _GGUF_KINDS.get(int(value)) if isinstance(value, int) else None
    if kind is None:
        raise UnsupportedError(f"{path}: '{key}': got {value!r}, expected 1, 2 or 3")
    return kind


def _from_folder(path: str, settings: dict[str, Any], usual: PoolingKind) -> PoolingKind:
    modes = [name for name in settings if name.startswith("pooling_mode_")]
    chosen = [name for name in modes if settings[name]]
    if not chosen:
        return usual
    if len(chosen) > 1 or chosen[0] not in _FOLDER_KEYS:
        raise UnsupportedError(f"{path}: pooling {', '.join(sorted(chosen))} is not supported")
    return _FOLDER_KEYS[chosen[0]]


def _normalizes(extras: Mapping[str, dict[str, Any]], where: str) -> bool:
    """Whether modules.json ends in a normalisation; without that file vectors have length 1."""
    if "modules" not in extras:
        return True
    listed = extras["modules"]["modules"]
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise FormatError(f"{where}: modules.json: got {listed!r:.80}, expected a list of modules")
    kinds = [str(module.get("type")).rpartition(".")[2] for module in listed]
    unknown = [kind for kind in kinds if kind not in _MODULES]
    if unknown:
        known = ", ".join(_MODULES)
        raise UnsupportedError(f"{where}: modules.json: got {unknown[0]:.80}, expected {known}")
    return "Normalize" in kinds

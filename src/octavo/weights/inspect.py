"""What is in a model, without loading it: the data behind `octavo inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.small_file import read_small
from octavo.weights.kept import kept_as, kept_bytes
from octavo.weights.quantized.origins import QuantizedOrigin
from octavo.weights.scheme import Scheme
from octavo.weights.tensor import Checkpoint, DerivedTensor, GroupedTensor, Tensor


@dataclass(frozen=True)
class SchemeUse:
    """How many tensors, elements and bytes are stored in one scheme.

    kept_as: the form in which its matrices are computed with. kept_bytes: of these tensors in it.
    """

    scheme: Scheme
    num_tensors: int
    num_elements: int
    size_bytes: int
    kept_as: str
    kept_bytes: int


@dataclass(frozen=True)
class Inspection:
    """Facts read from headers alone; None where the file does not say.

    tensor_bytes: in the file; kept_bytes: in memory. by_scheme: the largest in bytes first.
    unsupported: names of schemes that no backend computes with. bits_per_weight: 8 * bytes of all
    tensors / elements; 0 without tensors.
    """

    path: Path
    format: str
    architecture: str | None
    name: str | None
    num_parameters: int
    num_tensors: int
    file_bytes: int
    tensor_bytes: int
    kept_bytes: int
    bits_per_weight: float
    by_scheme: tuple[SchemeUse, ...]
    unsupported: tuple[str, ...]
    num_layers: int | None
    context_length: int | None
    vocab_size: int | None
    tokenizer: str | None
    has_chat_template: bool


def inspect_model(checkpoint: Checkpoint) -> Inspection:
    """Sum up an open checkpoint. Never raises for odd metadata: such facts are None."""
    uses = _scheme_uses(checkpoint)
    tensor_bytes = sum(use.size_bytes for use in uses)
    parameters = sum(use.num_elements for use in uses)
    facts = _gguf_facts if checkpoint.format == "gguf" else _folder_facts
    return Inspection(
        path=checkpoint.path,
        format=checkpoint.format,
        num_parameters=parameters,
        num_tensors=len(checkpoint.tensors),
        file_bytes=checkpoint.file_bytes,
        tensor_bytes=tensor_bytes,
        kept_bytes=sum(use.kept_bytes for use in uses),
        bits_per_weight=8 * tensor_bytes / parameters if parameters else 0.0,
        by_scheme=uses,
        unsupported=tuple(use.scheme.name for use in uses if not use.scheme.native),
        **facts(checkpoint),
    )


def _scheme_uses(checkpoint: Checkpoint) -> tuple[SchemeUse, ...]:
    uses: dict[Scheme, list[Tensor]] = {}
    for tensor in checkpoint.tensors.values():
        held = tensor.by_group if isinstance(tensor, GroupedTensor) else tensor
        uses.setdefault(held.scheme, []).append(held)
    parts = (
        SchemeUse(
            scheme,
            num_tensors=len(tensors),
            num_elements=sum(tensor.size for tensor in tensors),
            size_bytes=sum(map(_stored_bytes, tensors)),
            kept_as=kept_as(scheme),
            kept_bytes=sum(map(kept_bytes, tensors)),
        )
        for scheme, tensors in uses.items()
    )
    return tuple(sorted(parts, key=lambda use: -use.size_bytes))


def _stored_bytes(tensor: Tensor) -> int:
    """In the file, which stores some as no scheme does."""
    if isinstance(tensor, DerivedTensor) and isinstance(tensor.origin, QuantizedOrigin):
        return sum(part.nbytes for part in tensor.origin.sources)
    return tensor.num_bytes


def _integer(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _string(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) else None


def _gguf_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    metadata = checkpoint.metadata
    architecture = _string(metadata, "general.architecture")
    embedding = checkpoint.tensors.get("token_embd.weight")
    vocab_size = _integer(metadata, f"{architecture}.vocab_size")
    if embedding is not None:
        vocab_size = embedding.shape[0]
    elif "tokenizer.ggml.tokens" in metadata:
        vocab_size = len(metadata["tokenizer.ggml.tokens"])
    return {
        "architecture": architecture,
        "name": _string(metadata, "general.name"),
        "num_layers": _integer(metadata, f"{architecture}.block_count"),
        "context_length": _integer(metadata, f"{architecture}.context_length"),
        "vocab_size": vocab_size,
        "tokenizer": _string(metadata, "tokenizer.ggml.model"),
        "has_chat_template": "tokenizer.chat_template" in metadata,
    }


def _folder_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    config, path = checkpoint.metadata, checkpoint.path
    text_config = config.get("text_config")
    text = text_config if isinstance(text_config, dict) else config
    return {
        "architecture": _string(config, "model_type"),
        "name": path.resolve().name,
        "num_layers": _integer(text, "num_hidden_layers"),
        "context_length": _integer(text, "max_position_embeddings"),
        "vocab_size": _integer(text, "vocab_size"),
        "tokenizer": "tokenizer.json" if (path / "tokenizer.json").exists() else None,
        "has_chat_template": _has_template(path),
    }


def _has_template(path: Path) -> bool:
    if (path / "chat_template.jinja").exists():
        return True
    tokenizer_config = path / "tokenizer_config.json"
    return tokenizer_config.exists() and b'"chat_template"' in read_small(tokenizer_config)

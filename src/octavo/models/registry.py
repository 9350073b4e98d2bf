"""The model families, and which files belong to which. Adding one is a file and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.errors import FormatError, UnsupportedError
from octavo.graph import Graph
from octavo.models import gemma3, llama, qwen2
from octavo.models.config import ModelConfig, validate_config
from octavo.models.gguf import read_gguf
from octavo.models.huggingface import read_config_json
from octavo.models.source import Source
from octavo.weights.tensor import Checkpoint, Tensor


@dataclass(frozen=True)
class Family:
    """names: what GGUF's general.architecture and config.json's model_type may say.

    adjust: completes the config that the common keys gave, from the family's own keys.
    """

    key: str
    gguf_names: tuple[str, ...]
    json_names: tuple[str, ...]
    adjust: Callable[[ModelConfig, Source], ModelConfig]
    build: Callable[[ModelConfig, Mapping[str, Tensor]], Graph]


FAMILIES: tuple[Family, ...] = (
    Family("llama", ("llama",), ("llama", "mistral"), llama.adjust, llama.build),
    Family("qwen2", ("qwen2",), ("qwen2",), qwen2.adjust, qwen2.build),
    Family("gemma3", ("gemma3",), ("gemma3_text", "gemma3"), gemma3.adjust, gemma3.build),
)


def config_from(checkpoint: Checkpoint) -> ModelConfig:
    """Read the hyperparameters. Raises FormatError naming a bad key, UnsupportedError naming an
    architecture or setting that no family here covers."""
    is_gguf = checkpoint.format == "gguf"
    name = _architecture(checkpoint, "general.architecture" if is_gguf else "model_type")
    family = _family_of(checkpoint, name)
    if is_gguf:
        config, source = read_gguf(checkpoint, name, family.key)
    else:
        config, source = read_config_json(checkpoint, family.key)
    config = family.adjust(config, source)
    validate_config(config, str(checkpoint.path))
    return config


def build_graph(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """The checked graph of a model. Raises FormatError listing every tensor that is missing,
    unexpected or of a wrong shape."""
    for family in FAMILIES:
        if family.key == config.architecture:
            return family.build(config, tensors)
    raise UnsupportedError(_unknown(config.name, config.architecture))


def _architecture(checkpoint: Checkpoint, key: str) -> str:
    name = checkpoint.metadata.get(key)
    if not isinstance(name, str) or not name:
        raise FormatError(f"{checkpoint.path}: '{key}': got {name!r}, expected an architecture")
    return name


def _family_of(checkpoint: Checkpoint, name: str) -> Family:
    for family in FAMILIES:
        names = family.gguf_names if checkpoint.format == "gguf" else family.json_names
        if name in names:
            return family
    raise UnsupportedError(_unknown(str(checkpoint.path), name))


def _unknown(where: str, name: str) -> str:
    known = sorted({n for f in FAMILIES for n in (f.key, *f.gguf_names, *f.json_names)})
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; the nearest is '{near[0]}'" if near else ""
    return f"{where}: architecture '{name}' is not supported; known: {', '.join(known)}{hint}"
